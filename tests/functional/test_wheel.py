"""A wheel of this checkout, in an environment that has nothing else: what is in it, and what a user types there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from meshrt.show.installing import install_command
from tests.support.programs import ROOT, environment, project
from tests.test_docs import PAGES, needs, python_of

__all__: list[str] = []

# More than the others have: installers wait for an index. The second watchdog ends the run after 150 s.
pytestmark = pytest.mark.timeout(145)

_LOADS = "from meshrt.debug.dap.engine.loading import load; load()"
_RAY = "import meshrt; meshrt.proc_mesh(n=1, engine='ray')"
_NAMES = (
    "from meshrt.commandline.command import Offer; from meshrt.commandline.table import COMMANDS;"
    "print(*(each.name for each in COMMANDS.offered(Offer.SHELL)))"
)
#: A page that a text names.
_PAGE = re.compile(r"\bdocs/[\w-]+\.md")
#: What a message says last.
_INSTALLER = re.compile(r": ([^:\n]*\S -m (?:pip|ensurepip)\b.*)$")
SECONDS = 900


def run(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command without what makes the checkout importable."""
    left_out = {"PYTHONPATH", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV"}
    env = {name: value for name, value in environment(**more).items() if name not in left_out}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    print(*command, done.stdout, done.stderr, sep="\n")
    return done


def ran(*command: str, cwd: Path, **more: str) -> str:
    """Run a command that has to end well. Returns its output."""
    done = run(*command, cwd=cwd, **more)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def advised(done: subprocess.CompletedProcess[str]) -> str:
    """Return the command of an installer at the end of what was said."""
    assert done.returncode, done
    found = _INSTALLER.search(done.stderr.strip())
    assert found, done.stderr
    return found[1]


def empty(folder: Path) -> Path:
    """Make an environment with pip alone. Returns its Python."""
    ran(sys.executable, "-m", "venv", str(folder), cwd=folder.parent)
    return folder / "bin" / "python"


def tool(folder: Path, name: str, *further: str) -> Path | None:
    """Make an environment with a tool of the group `release`. Returns its Python; None: it cannot be installed here."""
    ran(sys.executable, "-m", "venv", "--without-pip", str(folder), cwd=folder.parent)
    python = folder / "bin" / "python"
    (wanted,) = (each for each in _group("release") if each.startswith(name))
    return None if pip(python, wanted, *further).returncode else python


def pip(python: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
    """Install into an environment, which need not have pip. What is installed is compiled when it is used."""
    words = ("--python", str(python), "install", "-q", "--no-compile", *wanted)
    return run(sys.executable, "-m", "pip", *words, cwd=python.parent)


@contextlib.contextmanager
def _once(folder: Path) -> Iterator[bool]:
    """Whether this worker is the one that has to fill a folder; others wait for it."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = folder / "complete"
        yield not complete.exists()
        complete.touch()


def _shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all workers of this run have."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution, and the wheel that was built from it."""
    folder = _shared(tmp_path_factory, "release")
    with _once(folder) as builds:
        if builds:
            # What builds it is there alone, so that no environments have to be made for it.
            python = tool(folder / "tools", "build", *_pyproject()["build-system"]["requires"])
            if python is None:
                pytest.skip("no package index can be reached")
            ran(str(python), "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT), cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and what it requires, and nothing else."""
    folder = _shared(tmp_path_factory, "installed")
    with _once(folder) as installs:
        if installs:
            (wheel,) = built.glob("*.whl")
            assert pip(empty(folder / "env"), str(wheel)).returncode == 0
    return folder / "env" / "bin" / "python"


@pytest.fixture(scope="module")
def shared(python: Path) -> Path:
    """The folder that `meshrt --help` names."""
    overview = ran(str(python.with_name("meshrt")), "--help", cwd=python.parent)
    where = re.search(r"^docs/ and examples/ are in (.*)$", overview, re.MULTILINE)
    assert where, overview
    return Path(where[1])


def _said(python: Path, code: str, cwd: Path) -> list[str]:
    """Return the words that code prints."""
    return ran(str(python), "-c", code, cwd=cwd).split()


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def _group(name: str) -> list[str]:
    return [each for each in _pyproject()["dependency-groups"][name] if isinstance(each, str)]


def _sources(folder: str) -> set[str]:
    """The files of a folder of the checkout, without what tools leave there."""
    found = (ROOT / folder).rglob("*")
    return {path.relative_to(ROOT).as_posix() for path in found if path.is_file() and "__pycache__" not in path.parts}


def test_a_command_at_the_end_of_a_message() -> None:
    how = install_command("textual>=8.0")
    said = subprocess.CompletedProcess("", 1, "", f"meshrt top: needs textual (or --once); to install it: {how}\n")
    assert advised(said) == how


@pytest.mark.slow
def test_what_is_in_the_distributions(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    name = project()["name"]
    assert wheel.name.startswith(f"{name}-") and source.name.startswith(f"{name}-")
    with ZipFile(wheel) as content:
        entries = set(content.namelist())
        metadata = content.read(next(each for each in entries if each.endswith("/METADATA"))).decode()
    data = f"{name}-{project()['version']}.data/data/share/doc/meshrt/"
    assert {each.partition("/")[0].partition("-")[0] for each in entries} == {"meshrt", name}
    assert {each for each in entries if each.startswith("meshrt/")} == _sources("meshrt")
    assert {each.removeprefix(data) for each in entries if each.startswith(data + "docs/")} == _sources("docs")
    assert {each.removeprefix(data) for each in entries if each.startswith(data + "examples/")} == _sources("examples")
    assert not [each for each in entries if "tests/" in each or "bench/" in each or each.endswith(".pyc")]
    assert any(each.endswith("/licenses/LICENSE") for each in entries)
    assert "\n# meshrt\n" in metadata and "Typing :: Typed" in metadata

    with tarfile.open(source) as archive:
        held = {each.partition("/")[2] for each in archive.getnames()}
    for folder in "meshrt", "docs", "examples":
        assert _sources(folder) <= held
    assert {"pyproject.toml", "LICENSE", "Makefile", "tests/conftest.py", ".ci/run"} <= held


@pytest.mark.slow
def test_what_an_index_would_refuse(built: Path, tmp_path: Path) -> None:
    python = tool(tmp_path / "tools", "twine")
    if python is None:
        pytest.skip("twine cannot be installed here")
    files = sorted(map(str, built.iterdir()))
    assert ran(str(python), "-m", "twine", "check", "--strict", *files, cwd=tmp_path).count("PASSED") == len(files) == 2


@pytest.mark.slow
def test_the_help_of_all_commands(python: Path, shared: Path, tmp_path: Path) -> None:
    command = str(python.with_name("meshrt"))
    (name,) = _said(python, "from meshrt.show.installing import distribution; print(distribution().name)", tmp_path)
    assert name == project()["name"] and shared.is_relative_to(python.parents[1])
    (place,) = _said(python, "import meshrt; print(meshrt.__file__)", tmp_path)
    assert Path(place).is_relative_to(python.parents[1]) and Path(place).with_name("py.typed").exists()
    overview = ran(command, "--help", cwd=tmp_path)
    assert ran(str(python), "-m", "meshrt", "--help", cwd=tmp_path) == overview
    helps = {"debug": ran(str(python), "-m", "meshrt.debug", "--help", cwd=tmp_path)}
    for each in _said(python, _NAMES, tmp_path):
        text = ran(command, each, "--help", cwd=tmp_path)
        assert text.startswith(each) and helps.setdefault(each, text) == text
    assert len(helps) > 20
    # Help and messages name pages as a checkout has them.
    texts = [*helps.values(), *(path.read_text("utf-8") for path in (ROOT / "meshrt").rglob("*.py"))]
    pages = {page for text in texts for page in _PAGE.findall(text)}
    assert len(pages) > 5 and sorted(page for page in pages if not (shared / page).is_file()) == []


@pytest.mark.slow
def test_programs_of_an_installed_meshrt(python: Path, shared: Path, tmp_path: Path) -> None:
    example = python_of(ROOT / "README.md")[0]
    (tmp_path / "example.py").write_text(example.text)
    assert ran(str(python), "example.py", cwd=tmp_path) == example.output
    (tmp_path / "script.py").write_text("import os; print('rank', os.environ['RANK'])")
    assert "rank 1" in ran(str(python.with_name("meshrt")), "run", "-n", "2", "script.py", cwd=tmp_path)
    assert "every step showed what it should" in ran(str(python), str(shared / "examples" / "demo.py"), cwd=tmp_path)


_TEST = """
from meshrt import Actor

def test_here(meshrt_mesh, request):
    assert len(meshrt_mesh(n=2).spawn("actor", Actor).get(20)) == 2
    assert request.config.pluginmanager.get_plugin("meshrt").__name__ == "meshrt.pytest_plugin"
"""


@pytest.mark.slow
def test_pytest_finds_the_plug_in_where_both_are_installed(python: Path, tmp_path: Path) -> None:
    """In an environment of its own, which has pytest, and all that is in the one of the wheel."""
    with_pytest = tmp_path / "env" / "bin" / "python"
    ran(sys.executable, "-m", "venv", "--without-pip", str(with_pytest.parents[1]), cwd=tmp_path)
    place = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (own,), (of_wheel,) = _said(with_pytest, place, tmp_path), _said(python, place, tmp_path)
    Path(own, "wheel.pth").write_text(f"{of_wheel}\n")
    if pip(with_pytest, "pytest").returncode:
        pytest.skip("pytest cannot be installed here")
    (tmp_path / "test_it.py").write_text(_TEST)
    assert "1 passed" in ran(str(with_pytest), "-m", "pytest", "-q", "test_it.py", cwd=tmp_path)
    off = run(str(with_pytest), "-m", "pytest", "-q", "-p", "no:meshrt", "test_it.py", cwd=tmp_path)
    assert off.returncode == 1 and "fixture 'meshrt_mesh' not found" in off.stdout


@pytest.mark.slow
def test_the_pages_that_need_more_run_where_that_is_installed(built: Path, tmp_path: Path) -> None:
    (wheel,), python = built.glob("*.whl"), empty(tmp_path / "env")
    pages = {page: wanted for page in PAGES if (wanted := needs(page))}
    assert (
        len(pages) > 1
        and pip(python, str(wheel), *(word for words in pages.values() for word in words)).returncode == 0
    )
    for page in pages:
        (tmp_path / "page.py").write_text("\n".join(block.text for block in python_of(page)))
        printed = ran(str(python), "page.py", cwd=tmp_path)
        assert all(block.output in printed for block in python_of(page))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["dap", "pyspy", "top"])
def test_what_is_advised_to_install_works(what: str, python: Path, tmp_path: Path) -> None:
    command = str(python.with_name("meshrt"))
    asks, says = {
        "dap": ([str(python), "-c", _LOADS], ""),
        "pyspy": ([command, "where", "--pid", str(os.getpid())], "rank"),
        "top": ([command, "top"], "the screen needs a terminal"),
    }[what]
    how = advised(run(*asks, cwd=tmp_path))
    ran("sh", "-c", how, cwd=tmp_path)  # as it is shown, by a shell
    done = run(*asks, cwd=tmp_path)
    assert not _INSTALLER.search(done.stderr) and says in done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS)
def test_what_is_advised_where_there_is_no_pip(built: Path, tmp_path: Path) -> None:
    """As in environments that uv makes."""
    (wheel,) = built.glob("*.whl")
    python = empty(tmp_path / "env")
    assert pip(python, str(wheel)).returncode == 0
    ran(str(python), "-m", "pip", "uninstall", "-q", "-y", "pip", cwd=tmp_path)
    how = advised(run(str(python), "-c", _LOADS, cwd=tmp_path))
    shown = ran(str(python.with_name("meshrt")), "dap", "--help", cwd=tmp_path)
    assert how in " ".join(shown.split()) and str(python) in how  # the help fits the terminal
    ran("sh", "-c", how, cwd=tmp_path)
    ran(str(python), "-c", _LOADS, cwd=tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS)
def test_the_engine_for_ray_is_installed_as_advised(built: Path, tmp_path: Path) -> None:
    """By itself: it is larger than all the rest."""
    (wheel,) = built.glob("*.whl")
    python = empty(tmp_path / "env")
    assert pip(python, str(wheel)).returncode == 0
    ran("sh", "-c", advised(run(str(python), "-c", _RAY, cwd=tmp_path)), cwd=tmp_path)
    assert not _INSTALLER.search(run(str(python), "-c", _RAY, cwd=tmp_path).stderr)
