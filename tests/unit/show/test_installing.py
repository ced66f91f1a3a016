"""What is said to install, for each way in which meshrt can have come to where it is."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meshrt.show import installing
from tests.support.programs import ROOT, project

EXTRAS = project()["optional-dependencies"]
#: The distribution as an installer writes it.
METADATA = """Metadata-Version: 2.4
Name: {name}
Version: 1
Requires-Dist: msgpack
Requires-Dist: debugpy<2,>=1.8.22; extra == 'dap'
Requires-Dist: textual-serve>=1.1; extra == "top"
Requires-Dist: textual>=8.0; extra == 'top'
"""
ASKS = """
import sys
sys.path.insert(0, sys.argv[1])
from meshrt.show.installing import distribution, install_extra
ours = distribution()
print(ours.name if ours else None, install_extra("dap", "debugpy"), install_extra("top", "textual"), sep="\\n")
"""


def asked(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASKS, *arguments], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.splitlines()


def copied(to: Path) -> Path:
    """Copy what is asked into a directory that is no checkout."""
    for name in ("__init__.py", "show/__init__.py", "show/installing.py"):
        (to / "meshrt" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "meshrt" / name, to / "meshrt" / name)
    return to


def installed(to: Path, name: str, script: str = "meshrt = meshrt.cli:main", origin: str = "") -> None:
    """Write the metadata of a distribution that has the command."""
    information = to / f"{name}-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(METADATA.format(name=name))
    (information / "entry_points.txt").write_text(f"[console_scripts]\n{script}\n")
    if origin:
        (information / "direct_url.json").write_text(origin)


def pip_install(*requirements: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def test_from_a_wheel(tmp_path: Path) -> None:
    installed(copied(tmp_path), "ours")
    found = ["ours", pip_install("debugpy<2,>=1.8.22"), pip_install("textual-serve>=1.1", "textual>=8.0")]
    assert asked(str(tmp_path)) == found


def test_in_a_checkout() -> None:
    """It says itself what it needs: what was installed from it may be older."""
    assert asked(str(ROOT))[1:] == [pip_install(*EXTRAS["dap"]), pip_install(*EXTRAS["top"])]


def test_from_a_directory_that_nothing_is_known_of(tmp_path: Path) -> None:
    """Another distribution has the command, or a package of the name stands somewhere else: neither is asked."""
    directory = copied(tmp_path / "here")
    installed(tmp_path / "here", "theirs", script="meshrt = meshrt.main:run")
    (tmp_path / "here" / "pyproject.toml").write_text("[project]\nname = 'something'\n")
    assert asked(str(directory)) == ["None", pip_install("debugpy"), pip_install("textual")]
    (tmp_path / "here" / "pyproject.toml").write_text("no toml")
    assert asked(str(directory)) == ["None", pip_install("debugpy"), pip_install("textual")]


@pytest.mark.parametrize("editable", ["true", "false"])
def test_installed_from_a_directory(editable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = copied(tmp_path / "a b")
    url = directory.as_uri()
    installed(tmp_path / "site", "ours", origin=f'{{"url": "{url}", "dir_info": {{"editable": {editable}}}}}')
    monkeypatch.setattr(installing, "_PACKAGE", directory / "meshrt")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    ours = installing.distribution()
    assert (ours.name if ours else None) == ("ours" if editable == "true" else None)


def test_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in environments that uv makes."""
    monkeypatch.setattr(sys, "executable", "/a b/python")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (tmp_path / "uv").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installing.install_command("textual>=8.0") == "uv pip install --python '/a b/python' 'textual>=8.0'"
    (tmp_path / "uv").unlink()
    python = "'/a b/python'"
    found = installing.install_command("textual>=8.0")
    assert found == f"{python} -m ensurepip && {python} -m pip install 'textual>=8.0'"


def test_every_extra_is_read_from_the_metadata() -> None:
    """A requirement with a further condition would not be."""
    ours = installing.distribution()
    if ours is None:
        pytest.skip("meshrt is not installed here")
    named = [text for text in ours.requires or [] if "extra" in text]
    assert named and all(map(installing._EXTRA.match, named))


def test_where_the_documentation_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installing.documentation() == ROOT
    monkeypatch.setattr(installing, "_PACKAGE", tmp_path / "lib" / "meshrt")
    places = {"data": tmp_path / "env", "user": tmp_path / "user"}
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(places[name]))
    monkeypatch.setattr("site.getuserbase", lambda: str(places["user"]))
    assert installing.documentation() is None
    for base in places["user"], places["data"], tmp_path / "lib":  # the ones that are looked for last come first
        place = base / "share" / "doc" / "meshrt"
        (place / "docs").mkdir(parents=True)
        (place / "docs" / "finding-faults.md").touch()
        assert installing.documentation() == place
