"""What runs in a process that is taken in: it tells the command, raises nothing, and leaves what the process has."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt.spmd import injected

TEXT = Path(injected.__file__).read_text(encoding="utf-8")
ROOT = str(Path(meshrt.__file__).parents[1])


def run(tmp_path: Path, before: str = "", prints: str = "goes on\n", **changed: Any) -> tuple[list[str], str]:
    """Run it in a process that is no rank, as `sys.remote_exec` would; return what it tells, and what is printed."""
    script = tmp_path / "script.py"
    values = {
        "script": str(script),
        "teller": str(tmp_path / "told"),
        "folder": ROOT,
        "version": meshrt.__version__,
        "places": {},
        "needed": ["json"],
        "part": "no part",
        **changed,
    }
    script.write_text(f"{TEXT}\n\ntake_in(**{values!r})\n")
    Path(values["teller"]).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(values["teller"])
        listener.listen()
        code = f"{before}\nexec(compile(open({str(script)!r}).read(), 'x', 'exec'), {{}})\nprint('goes on')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
        told, _ = listener.accept()
        with told:
            text = b"".join(iter(lambda: told.recv(4096), b"")).decode()
    assert done.stdout == prints and not script.exists()
    return text.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("before", "changed", "why"),
    [
        ("", {}, "JSONDecodeError: "),
        ("", {"folder": "/nowhere"}, "/nowhere has no package meshrt that this process can read"),
        ("", {"needed": ["no_such_thing"]}, "its Python cannot load no_such_thing (No module named 'no_such_thing'); "),
        (
            "import sys; sys.modules['meshrt'] = sys",
            {},
            "it has loaded meshrt of another project, and the command is of",
        ),
    ],
)
def test_what_goes_wrong_is_told(before: str, changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    lines, err = run(tmp_path, before, **changed)
    assert lines[0] == "here" and lines[1].startswith(f"failed: {why}"), lines
    assert err == "" and len(lines) == 2


def test_a_package_that_is_missing_is_lent_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "lent").mkdir()
    for name in ("wanted_here", "not_wanted"):
        (tmp_path / "lent" / f"{name}.py").touch()
    folder = str(tmp_path / "lent")
    lines, _ = run(tmp_path, needed=["wanted_here"], places={"wanted_here": folder})
    assert "JSONDecodeError" in lines[1]
    lines, _ = run(tmp_path, needed=["wanted_here", "not_wanted"], places={"wanted_here": folder})
    assert "cannot load not_wanted" in lines[1]


def test_ctrl_c_is_left_to_the_process(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt")
    before = "import signal; signal.signal(signal.SIGINT, lambda *_: print('interrupted', end=' '))"
    script = {"needed": ["slow"], "places": {"slow": str(tmp_path)}}
    lines, err = run(tmp_path, before, "interrupted goes on\n", **script)
    assert lines == ["here", "failed: Ctrl-C has interrupted it"] and err == ""
