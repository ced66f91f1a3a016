"""Exceptions that are none of the ordinary kind, and code that cannot be loaded: the rank lives, the caller is told."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ActorError, ProcessDied, ProcMesh, endpoint, proc_mesh
from tests.faults.actors import AsyncVictim, BornDead, Victim, raise_kind, wait_for_file
from tests.faults.watch import LONG, Program, all_gone
from tests.support.hostnames import HOST_NAMES
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

RAISED = {
    "sys.exit": ("SystemExit", "3"),
    "KeyboardInterrupt": ("KeyboardInterrupt", "by hand"),
    "GeneratorExit": ("GeneratorExit", "by hand"),
    "CancelledError": ("asyncio.exceptions.CancelledError", "by hand"),
    "StopIteration": ("StopIteration", "by hand"),
    "BaseExceptionGroup": ("BaseExceptionGroup", "by hand (2 sub-exceptions)"),
}


@pytest.mark.row("P4")
@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("actor", [Victim, AsyncVictim])
def test_what_an_endpoint_raises_reaches_the_caller_and_the_rank_lives(actor: type[Actor], kind: str) -> None:
    victims: Any = proc_mesh(n=2).spawn("victim", actor)
    pids = victims.pid.call().get(LONG).values()
    with pytest.raises(ActorError) as caught:
        victims.misbehave.call(kind).get(LONG)
    name, message = RAISED[kind]
    if kind == "StopIteration" and actor is AsyncVictim:
        name, message = "RuntimeError", "coroutine raised StopIteration"
    assert (caught.value.remote.type, caught.value.remote.message) == (name, message)
    assert "raise_kind" in caught.value.remote.traceback and str(caught.value.rank) in str(caught.value)
    assert victims.pid.call().get(LONG).values() == pids


@pytest.mark.row("P9")
@pytest.mark.parametrize("kind", ["error", *RAISED])
def test_what_init_raises_is_the_spawn_error(kind: str) -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    pids = mesh.spawn("probe", Victim).pid.call().get(LONG).values()
    born = mesh.spawn("born", BornDead, kind, (3,))
    with pytest.raises(ActorError) as caught:
        born.get(LONG)
    assert caught.value.rank == 3 and caught.value.endpoint == "__init__"
    assert caught.value.remote.type == ("LookupError" if kind == "error" else RAISED[kind][0])
    assert "in __init__" in caught.value.remote.traceback
    with pytest.raises(ActorError, match="earlier, in __init__") as later:
        born.pid.call().get(LONG)
    assert later.value.remote.type == caught.value.remote.type
    assert later.value.remote.traceback == caught.value.remote.traceback
    assert born.slice(hosts=0).pid.call().get(LONG).values() == pids[:2]


@pytest.mark.row("P9")
def test_the_error_of_a_spawn_tells_what_each_rank_has_raised() -> None:
    born = proc_mesh(n=4).spawn("born", BornDead, "error", (1, 3))
    for rank in (1, 3):  # answered behind what `__init__` has raised
        assert isinstance(born.slice(n=rank).pid.call_one().exception(LONG), ActorError)
    with pytest.raises(ActorError) as caught:
        born.get(LONG)
    every = sorted((caught.value, *caught.value.others), key=lambda error: error.rank)
    assert [(error.rank, error.remote.message) for error in every] == [
        (1, "rank 1 does not start"),
        (3, "rank 3 does not start"),
    ]
    assert all("in __init__" in error.remote.traceback for error in every)


class Unnamed(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise SystemExit("not told")


class Secretive(Actor):
    @endpoint
    def fail(self) -> None:
        raise Unnamed("Secret", (Exception,), {})("what is wrong")

    @endpoint
    def ok(self) -> int:
        return 1


def test_the_class_of_an_exception_may_refuse_to_say_its_name() -> None:
    secretive = proc_mesh(n=1).spawn("secretive", Secretive)
    with pytest.raises(ActorError, match="Secret: what is wrong"):
        secretive.fail.call().get(LONG)
    assert secretive.ok.call_one().get(LONG) == 1


@pytest.mark.row("P12")
def test_deep_recursion_is_an_ordinary_error() -> None:
    victims = proc_mesh(n=1).spawn("victim", Victim)
    with pytest.raises(ActorError) as caught:
        victims.recurse.call().get(LONG)
    assert caught.value.remote.type == "RecursionError"
    assert victims.echo.call_one(1).get(LONG) == 1


@pytest.mark.row("P11")
@pytest.mark.parametrize("kind", ["error", "sys.exit", "unraisable"])
def test_what_nobody_catches_is_reported_and_harms_no_call(kind: str, tmp_path: Path) -> None:
    """Raised in a thread, or where Python can only report it."""
    script = f"""
        victims = proc_mesh(n=1).spawn("victim", Victim)
        call = victims.unraisable.call_one() if {kind!r} == "unraisable" else victims.in_thread.call_one({kind!r})
        tell(values=[call.get({LONG}), victims.echo.call_one(1).get({LONG})])
    """
    with Program(script, tmp_path) as program:
        assert program.told("values") == ["fine", 1]
        assert program.ends() == (1 if kind == "error" else 0)
        text = {"error": "ValueError: from a thread", "unraisable": "ValueError: from __del__", "sys.exit": ""}[kind]
        assert text in program.output


#: Another host asks the script for a module, which has known of this one.
MISSING = (
    ("ImportError", "module vanishing cannot be fetched")
    if len(HOST_NAMES) > 1
    else ("ModuleNotFoundError", "No module named 'vanishing'")
)
BROKEN_MODULES = {
    "missing": ("", *MISSING),
    "syntax": ("def broken(:\n", "SyntaxError", "invalid syntax"),
    "raising": ("raise LookupError('at import')\n", "LookupError", "at import"),
    "exiting": ("import sys\nsys.exit('at import')\n", "SystemExit", "at import"),
}


@pytest.mark.slow
@pytest.mark.row("P10")
@pytest.mark.parametrize("how", BROKEN_MODULES)
def test_a_module_that_loads_in_the_script_only(how: str, tmp_path: Path) -> None:
    """The actor's module is fine when the script imports it, and gone or broken when the ranks do."""
    text, kind, message = BROKEN_MODULES[how]
    folder = tmp_path / "modules"
    folder.mkdir()
    module = folder / "vanishing.py"
    module.write_text("from meshrt import Actor\nclass Gone(Actor):\n    pass\n")
    script = f"""
        import sys
        sys.path.insert(0, {str(folder)!r})
        import vanishing
        path = {str(module)!r}
        os.unlink(path) if {how == "missing"} else open(path, "w").write({text!r})
        import shutil, importlib
        shutil.rmtree({str(folder / "__pycache__")!r}, ignore_errors=True)
        mesh = proc_mesh(n=2)
        try:
            mesh.spawn("gone", vanishing.Gone).get({LONG})
        except ActorError as error:
            tell(kind=error.remote.type, message=error.remote.message, text=str(error))
        tell(alive=len(mesh.spawn("victim", Victim).pid.call().get({LONG}).values()))
    """
    with Program(script, tmp_path) as program:
        assert program.told("alive") == 2
        assert program.told("kind") == kind and message in program.told("message")
        assert program.ends() == 0


@pytest.mark.slow
@pytest.mark.row("P10")
@pytest.mark.parametrize("how", ["syntax", "missing", "exiting", "dying"])
def test_a_preloaded_module_that_fails(how: str, tmp_path: Path) -> None:
    texts = {"dying": "import os\nos._exit(3)\n", **{name: text for name, (text, _, _) in BROKEN_MODULES.items()}}
    if how != "missing":
        (tmp_path / "broken_preload.py").write_text(texts[how])
    script = f"""
        from meshrt import SpawnError
        try:
            proc_mesh(n=2, preload=["broken_preload"]).get({LONG})
        except SpawnError as error:
            tell(text=str(error))
        tell(alive=len(proc_mesh(n=2).spawn("victim", Victim).pid.call().get({LONG}).values()))
    """
    with Program(script, tmp_path) as program:
        text = program.told("text")
        assert {"syntax": "SyntaxError", "missing": "ModuleNotFoundError"}.get(how, "preload") in text
        assert program.told("alive") == 2
        assert program.ends() == 0


@pytest.mark.row("P10")
def test_an_interpreter_that_cannot_start(tmp_path: Path) -> None:
    """The host agent itself does not come up: the mesh says so instead of hanging."""
    script = f"""
        import sys
        sys.executable = "/bin/false"
        mesh = proc_mesh(n=2)
        victims = mesh.spawn("victim", Victim)
        tell(errors=[type(f.exception({LONG})).__name__ for f in (mesh.initialized, victims.initialized)])
    """
    with Program(script, tmp_path) as program:
        assert program.told("errors") == ["SpawnError", "HostLost"]
        assert program.ends() == 0


@pytest.mark.row("P10")
def test_the_last_words_of_an_agent_that_cannot_start_are_in_the_error(tmp_path: Path) -> None:
    """And on the terminal; here its interpreter finds the package broken."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "msgpack.py").write_text("def broken(:\n")
    script = f"""
        def error_of(mesh):
            futures = [mesh.initialized, mesh.spawn("victim", Victim).initialized]
            return [str(future.exception({LONG})) for future in futures]
        os.environ["PYTHONPATH"] = {str(tmp_path / "broken")!r}
        tell(broken=error_of(proc_mesh(n=1)))
        del os.environ["PYTHONPATH"]
        tell(alive=proc_mesh(n=2).spawn("victim", Victim).echo.call(1).get({LONG}).values())
    """
    with Program(script, tmp_path) as program:
        spawn_error, call_error = program.told("broken")
        lost = "rank 0 of mesh1 was lost with its host agent (its process exited with code 1)\nits last lines:\n"
        assert lost in spawn_error
        assert " was lost with the agent of host " in call_error
        assert " (its process exited with code 1) (the call did not run)\nits last lines:\n" in call_error
        assert all("  | SyntaxError: invalid syntax" in text for text in (spawn_error, call_error))
        assert program.told("alive") == [1, 1]
        assert program.ends() == 0
        assert program.output.count("SyntaxError: invalid syntax\n") == 1


class Late(Actor):
    """Its arguments cannot be read in the ranks."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @endpoint
    def ok(self) -> bool:
        return True


class Unreadable:
    """Pickles, and runs ``how`` when it is read."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return _read_badly, (self.how,)


def _read_badly(how: str) -> None:
    if how == "exit":
        sys.exit(9)
    raise LookupError("cannot be read")


class Unwritable:
    """Raises ``kind`` when it is pickled."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        raise_kind(self.kind)


def unwritable(kind: str) -> Unwritable:
    return Unwritable(kind)


def raise_unwritable(kind: str) -> None:
    raise LookupError(Unwritable(kind))


@pytest.mark.row("S7")
@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("function", [unwritable, raise_unwritable])
def test_pickling_an_answer_raises_anything(function: Any, kind: str) -> None:
    """Whatever a ``__reduce__`` raises in the rank ends the call, not the rank."""
    victims = proc_mesh(n=1).spawn("victim", Victim)
    with pytest.raises(ActorError) as caught:
        victims.apply.call_one(function, kind).get(LONG)
    assert "Unwritable" in str(caught.value) or RAISED[kind][0] in str(caught.value)
    assert victims.echo.call_one(1).get(LONG) == 1


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_arguments_that_cannot_be_read_in_the_rank(how: str) -> None:
    mesh: ProcMesh = proc_mesh(n=1)
    with pytest.raises(ActorError, match="cannot be read" if how == "raise" else "SystemExit"):
        mesh.spawn("late", Late, Unreadable(how)).get(LONG)
    victims = mesh.spawn("victim", Victim)
    with pytest.raises(ActorError, match="cannot be read" if how == "raise" else "SystemExit"):
        victims.echo.call_one(Unreadable(how)).get(LONG)
    assert victims.echo.call_one(1).get(LONG) == 1


class Exiting(Actor):
    """Exits in a task of its own, when the file ``gate`` exists."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.task: asyncio.Task[None] | None = None

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    async def start(self, code: Any) -> None:
        async def end() -> None:
            await asyncio.to_thread(wait_for_file, str(self.folder / "gate"))
            raise_kind(code) if code == "KeyboardInterrupt" else sys.exit(code)

        self.task = asyncio.create_task(end())

    @endpoint
    async def wait(self) -> None:
        (self.folder / "inside").touch()
        try:
            await asyncio.Event().wait()
        finally:
            (self.folder / "finally").touch()

    def __cleanup__(self, error: BaseException | None) -> None:
        (self.folder / "cleanup").touch()


EXITS = [
    (3, 3, "sys.exit(3) in a task of exiting"),
    (None, 0, "sys.exit() in a task of exiting"),
    ("in words", 1, "sys.exit(in words) in a task of exiting"),
    ("KeyboardInterrupt", 1, "KeyboardInterrupt in a task of exiting"),
]


@pytest.mark.row("P4")
@pytest.mark.parametrize(("code", "status", "text"), EXITS)
@pytest.mark.parametrize("first", [True, False])
def test_an_exit_in_a_task_ends_the_rank_and_every_caller_is_told_why(
    first: bool, code: Any, status: int, text: str, tmp_path: Path
) -> None:
    """As asyncio has it: it leaves the loop, and means the process. The rank ends in order."""
    mesh = proc_mesh(n=2)
    if not first:
        mesh.spawn("first", Victim).get(LONG)
    exiting = mesh.slice(n=0).spawn("exiting", Exiting, str(tmp_path))
    beside = mesh.spawn("beside", Victim).get(LONG)
    pid = exiting.pid.call_one().get(LONG)
    exiting.start.call_one(code).get(LONG)
    running, waiting = exiting.wait.call_one(), exiting.pid.call_one()
    wait_until((tmp_path / "inside").exists, LONG)
    (tmp_path / "gate").touch()
    for call in (running, waiting):
        error = call.exception(LONG)
        assert isinstance(error, ProcessDied) and (error.exit_code, error.signal) == (status, None)
        assert text in str(error) and f"rank 0 (n=0) on {HOST_NAMES[0]}, pid {pid}" in str(error)
    all_gone([pid], LONG)
    assert {path.name for path in tmp_path.iterdir()} == {"gate", "inside", "finally", "cleanup"}
    assert text in str(exiting.pid.call_one().exception(LONG))
    assert text in str(beside.slice(n=0).pid.call_one().exception(LONG))
    assert beside.slice(n=1).echo.call_one(1).get(LONG) == 1


def test_an_exit_in_a_task_that_nobody_waits_for_is_announced(tmp_path: Path) -> None:
    script = f"""
        from tests.faults.test_worker_raises import Exiting
        exiting = proc_mesh(n=2).spawn("exiting", Exiting, {str(tmp_path)!r})
        exiting.slice(n=1).start.call_one("in words").get({LONG})
        open({str(tmp_path / "gate")!r}, "w").close()
        told = None
        while told is None:
            told = exiting.slice(n=0).pid.call_one().exception({LONG})
        tell(kind=type(told).__name__, alive=exiting.slice(n=0).pid.call_one().get({LONG}))
    """
    with Program(script, tmp_path) as program:
        wait_until(lambda: "exited with code 1 (sys.exit(in words) in a task of exiting)" in program.output, LONG)
        assert program.told("kind") == "ProcessDied" and program.told("alive")
        assert program.ends() == 0
        assert "[exiting n=1] in words\n" in program.output


@pytest.mark.slow
def test_an_exit_in_a_task_of_an_actor_in_the_script_is_reported(tmp_path: Path) -> None:
    """The script is not ended by an actor that lives in it."""
    script = f"""
        from tests.faults.test_worker_raises import Exiting
        exiting = this_proc().spawn("exiting", Exiting, {str(tmp_path)!r}).get({LONG})
        exiting.start.call_one(3).get({LONG})
        open({str(tmp_path / "gate")!r}, "w").close()
        try:
            exiting.wait.call_one().get(0.3)
        except CallTimeout:
            tell(alive=os.path.exists({str(tmp_path / "inside")!r}))
    """
    with Program(script, tmp_path) as program:
        assert program.told("alive")
        wait_until(lambda: "SystemExit: 3" in program.output, LONG)
        assert "a task of exiting raised on rank 0; no caller receives the exception" in program.output
        assert program.ends() == 1
