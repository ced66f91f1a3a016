"""What runs in a process that is taken in: it tells the command, raises nothing, and leaves what the process has."""

from __future__ import annotations

import contextlib
import os
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
#: As `sys.remote_exec` of Python 3.14, but at once.
BEGIN = """\
import sys, threading
def remote_exec(pid, path):
    exec(compile(open(path).read(), path, "exec"), {})
sys.remote_exec = remote_exec
"""
END = """
print("goes on", flush=True)
for thread in threading.enumerate():
    if thread.name == "meshrt-load":
        thread.join()
"""


def run(
    tmp_path: Path, before: str = "", prints: str = "goes on\n", *, listens: bool = True, **changed: Any
) -> list[str]:
    """Run it in a process that is no rank; return what it tells."""
    (tmp_path / "folder").mkdir(exist_ok=True)
    script, teller = tmp_path / "folder" / "7.py", tmp_path / "folder" / "told"
    values = {
        "script": str(script),
        "teller": str(teller),
        "folder": ROOT,
        "version": meshrt.__version__,
        "places": {},
        "needed": ["json"],
        "part": "no part",
        **changed,
    }
    script.write_text(f"{TEXT}\n\ntake_in(**{values!r})\n")
    teller.unlink(missing_ok=True)
    lines: list[str] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(teller))
        if listens:
            listener.listen()
        code = f"{BEGIN}{before}\nremote_exec(0, {str(script)!r}){END}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
        assert (done.stdout, done.stderr) == (prints, "")
        listener.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                told, _ = listener.accept()
                with told:
                    told.setblocking(True)
                    lines += b"".join(iter(lambda: told.recv(4096), b"")).decode().splitlines()  # noqa: B023
    assert not script.exists()
    return lines


def test_it_loads_meshrt_and_joins(tmp_path: Path) -> None:
    """It does what it is told by its part, which is none here."""
    loading, here, failed = run(tmp_path)
    assert (loading, here) == ("loading", "here") and failed.startswith("failed: JSONDecodeError: ")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"folder": "/nowhere"}, "/nowhere has no package meshrt that this process can read"),
        ({"needed": ["no_such_thing"]}, "its Python cannot load no_such_thing (No module named 'no_such_thing'); "),
    ],
)
def test_what_goes_wrong_is_told(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    loading, failed = run(tmp_path, **changed)
    assert loading == "loading" and failed.startswith(f"failed: {why}")


def test_another_package_of_this_name(tmp_path: Path) -> None:
    (failed,) = run(tmp_path, "sys.modules['meshrt'] = sys")
    assert failed.startswith("failed: it has loaded meshrt of another project, but the command belongs to meshrt ")


def test_a_package_that_is_missing_is_lent_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "lent").mkdir()
    for name in ("wanted_here", "not_wanted"):
        (tmp_path / "lent" / f"{name}.py").touch()
    folder = str(tmp_path / "lent")
    assert "JSONDecodeError" in run(tmp_path, needed=["wanted_here"], places={"wanted_here": folder})[-1]
    lines = run(tmp_path, needed=["wanted_here", "not_wanted"], places={"wanted_here": folder})
    assert "cannot load not_wanted" in lines[-1]


def test_ctrl_c_is_left_to_the_process(tmp_path: Path) -> None:
    before = """\
import signal, types
def arrive(part, settled):
    raise KeyboardInterrupt
sys.modules["meshrt.spmd.join"] = types.SimpleNamespace(arrive=arrive)
signal.signal(signal.SIGINT, lambda *_: print("interrupted", end=" "))
"""
    lines = run(tmp_path, before, "interrupted goes on\n")
    assert lines == ["here", "failed: Ctrl-C has interrupted it"]


def test_where_the_command_has_gone_nothing_is_left(tmp_path: Path) -> None:
    """Not even where SIGPIPE ends the process."""
    assert run(tmp_path, "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)", listens=False) == []
    assert not os.listdir(tmp_path)
