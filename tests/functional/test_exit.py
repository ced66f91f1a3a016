"""The exit of a rank's interpreter: at a clean stop it is that of a script, within the grace."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, endpoint, proc_mesh
from tests.support.programs import environment, run_python
from tests.support.screen import Screen

KEPT: dict[str, Any] = {}


class Notes:
    """Writes a line when it is deleted."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{self.text}\n")


class Crashes:
    def __del__(self) -> None:
        ctypes.string_at(0)


class Leaver(Actor):
    """Leaves behind what only the exit of an interpreter ends."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @endpoint
    def open_a_file(self) -> None:
        KEPT["file"] = (self.folder / "global").open("w")
        KEPT["file"].write("of a global")

    @endpoint
    def import_a_module(self) -> None:
        importlib.import_module("left_open").file.write("of a module")

    @endpoint
    def start_a_thread(self, gate: str) -> None:
        path = self.folder / "thread"

        def late() -> None:
            with open(gate):  # a fifo
                pass
            path.write_text("ended")

        threading.Thread(target=late, name="late").start()

    @endpoint
    def register(self) -> None:
        path = self.folder / "atexit"
        atexit.register(lambda: path.write_text("ran"))

    @endpoint
    def keep_objects(self) -> None:
        self.own = Notes(self.folder / "deleted", "attribute")
        self.cycle = self
        KEPT["notes"] = Notes(self.folder / "deleted", "global")

    @endpoint
    def crash_at_exit(self) -> None:
        KEPT["crash"] = Crashes()

    @endpoint
    def have_thread(self) -> None:
        threading.Thread(target=threading.Event().wait, name="stuck").start()


def test_a_clean_stop_ends_the_interpreter_as_that_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left_open.py").write_text(f"file = open({str(tmp_path / 'module')!r}, 'w')\n")
    os.mkfifo(tmp_path / "gate")
    monkeypatch.syspath_prepend(tmp_path)
    mesh = proc_mesh(n=1)
    actor = mesh.spawn("leaver", Leaver, str(tmp_path)).get(20)
    actor.import_a_module.call_one().get(20)
    for name in ("open_a_file", "register", "keep_objects"):
        getattr(actor, name).call_one().get(20)
    actor.start_a_thread.call_one(str(tmp_path / "gate")).get(20)
    opens = threading.Thread(target=(tmp_path / "gate").write_text, args=("",))
    opens.start()
    mesh.stop()
    opens.join()
    assert (tmp_path / "global").read_text() == "of a global"
    assert (tmp_path / "module").read_text() == "of a module"
    assert (tmp_path / "thread").read_text() == "ended"
    assert (tmp_path / "atexit").read_text() == "ran"
    assert sorted((tmp_path / "deleted").read_text().split()) == ["attribute", "global"]


def test_atexit_functions_of_a_preloaded_module_run_in_the_ranks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registers.py").write_text(
        "import atexit, os, pathlib\n"
        f"atexit.register(lambda: (pathlib.Path({str(tmp_path)!r}) / f'{{os.getpid()}}.pid').touch())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mesh = proc_mesh(n=2, preload=["registers"])
    pids = mesh.spawn("leaver", Leaver, str(tmp_path)).get(20)
    ours = {mesh._owner().about(mesh.mesh_id, rank)[1] for rank in range(len(pids))}
    mesh.stop()
    assert {int(path.stem) for path in tmp_path.glob("*.pid")} == ours


def test_a_thread_that_does_not_end_is_named_and_the_rest_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    mesh = proc_mesh(n=1, name="train")
    actor = mesh.spawn("leaver", Leaver, str(tmp_path)).get(20)
    actor.have_thread.call_one().get(20)
    actor.open_a_file.call_one().get(20)
    actor.register.call_one().get(20)
    mesh.stop(grace=3)  # it comes to its threads meanwhile
    text = err.wait_for("to let calls finish: ")
    assert "unfinished work of train was terminated 3 s after its stop()" in text
    assert "  at exit: thread 'stuck', which is not a daemon, on rank 0\n" in text
    assert (tmp_path / "global").read_text() == "of a global"
    assert (tmp_path / "atexit").read_text() == "ran"


SCRIPT = """
from tests.functional.test_exit import Leaver
from meshrt import proc_mesh
mesh = proc_mesh(n=1, name="train")
actor = mesh.spawn("leaver", Leaver, {folder!r}).get()
actor.open_a_file.call_one().get()
"""


def test_a_crash_in_it_is_a_failure(tmp_path: Path) -> None:
    script = SCRIPT.format(folder=str(tmp_path)) + "actor.crash_at_exit.call_one().get()\n"
    (tmp_path / "script.py").write_text(script)
    done = run_python(str(tmp_path / "script.py"), seconds=60, env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert done.returncode == 1
    assert "killed by SIGSEGV while it was being stopped" in done.stderr and "in __del__" in done.stderr
    assert (tmp_path / "global").read_text() == "of a global"


def test_an_error_of_the_script_waits_for_no_thread_and_loses_no_data(tmp_path: Path) -> None:
    script = SCRIPT.format(folder=str(tmp_path)) + "actor.have_thread.call_one().get()\nraise ValueError('own')\n"
    (tmp_path / "script.py").write_text(script)
    done = run_python(str(tmp_path / "script.py"), seconds=60, env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert done.stderr.splitlines()[-1] == "ValueError: own" and "unfinished work" not in done.stderr
    assert (tmp_path / "global").read_text() == "of a global"
