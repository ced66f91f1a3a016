"""Who is told of a failure: the actor that made the mesh, those above it, at last the script's next wait."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import Actor, ActorError, HostLost, MeshFailure, MeshStopped, ProcessDied, endpoint, proc_mesh
from meshrt.actor.mailbox import Mailbox
from meshrt.mesh import supervision
from meshrt.mesh.program import running_root
from meshrt.transport.kernel import kernel_state, stat_fields
from tests.support.actors import Echo
from tests.support.pausing import paused
from tests.support.programs import ROOT, environment, run_python
from tests.support.screen import Screen
from tests.support.waiting import holds_within, wait_until

WAIT = 20


class Owner(Actor):
    """Makes a mesh, and decides by ``answer`` what becomes of its failures."""

    def __init__(self, answer: str, seen: str = "") -> None:
        self.answer = answer
        self.seen = Path(seen)

    @endpoint
    def make(self, size: int = 2) -> list[int]:
        self.mesh = proc_mesh(n=size, name="inner")
        self.workers = self.mesh.spawn("worker", Echo)
        return self.workers.pid.call().get(WAIT).values()

    @endpoint
    def make_owner(self, answer: str) -> list[int]:
        self.mesh = proc_mesh(n=1, name="middle")
        self.below = self.mesh.spawn("below", Owner, answer)
        pids: list[int] = self.below.make.call_one().get(WAIT)
        return pids

    @endpoint
    def broadcast_a_failure(self) -> None:
        self.workers.apply.broadcast(fail)
        self.workers.echo.call(None).get(WAIT)  # it has been served

    @endpoint
    def wait_in_a_call(self, path: str) -> str:
        return str(self.workers.slice(n=0).apply.call_one(wait_for, path).get(WAIT))

    @endpoint
    def ping(self) -> str:
        return "here"

    @endpoint
    def getpid(self) -> int:
        return os.getpid()

    def note(self, text: str) -> None:
        with self.seen.open("a") as file:
            file.write(f"{text}\n")

    def __supervise__(self, failure: MeshFailure) -> object:
        self.note(f"{failure.mesh_name} {failure.ranks} {type(failure.error).__name__}")
        if self.answer == "wait":
            try:
                threading.Event().wait()
            finally:
                self.note("interrupted")
        if self.answer == "raise":
            raise LookupError("no spare")
        if self.answer == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.answer == "block":
            threading.Event().wait()
        if self.answer == "coroutine":
            return asyncio.sleep(0)
        return self.answer == "handle"

    def __cleanup__(self, exc: object) -> None:
        if self.answer in ("wait", "await"):
            self.note("cleaned up")


class AsyncOwner(Owner):
    @endpoint
    async def sleep(self) -> None:
        await asyncio.Event().wait()

    async def __supervise__(self, failure: MeshFailure) -> object:
        if self.answer == "await":
            self.note("asked")
            try:
                await asyncio.Event().wait()
            finally:
                self.note("interrupted")
        await asyncio.sleep(0)
        return super().__supervise__(failure)


class HalfAsyncOwner(Owner):
    """Has an event loop; its ``__supervise__`` is plain."""

    @endpoint
    async def sleep(self) -> None:
        await asyncio.Event().wait()


class Careless(Actor):
    """Makes a mesh, and has no ``__supervise__``."""

    @endpoint
    def make(self) -> list[int]:
        self.workers = proc_mesh(n=1, name="inner").spawn("worker", Echo)
        return self.workers.pid.call().get(WAIT).values()


def fail() -> None:
    raise ValueError("broken")


def wait_for(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.001)
    return "seen"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def asked_about(path: str) -> set[int]:
    """Return the ranks of `inner` that its owner was asked about."""
    texts = [line.partition("(")[2].partition(")")[0] for line in lines(Path(path))]
    return {int(rank) for text in texts for rank in text.replace(" ", "").split(",") if rank}


def next_wait(handle: Any) -> BaseException:
    """Call until a wait raises, and return that."""
    errors: list[BaseException] = []

    def raised() -> bool:
        try:
            handle.ping.call_one().get(WAIT)
        except Exception as error:
            errors.append(error)
        return bool(errors)

    wait_until(raised, WAIT)
    return errors[0]


def own(tmp_path: Path, answer: str, cls: type[Owner] = Owner) -> tuple[Any, list[int], Path]:
    seen = tmp_path / "seen"
    owner = proc_mesh(n=1, name="outer").spawn("owner", cls, answer, str(seen))
    return owner, owner.make.call_one().get(WAIT), seen


@pytest.mark.parametrize("cls", [Owner, AsyncOwner])
def test_an_owner_handles_it_and_nobody_else_is_told(
    cls: type[Owner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    owner, pids, seen = own(tmp_path, "handle", cls)
    os.kill(pids[1], signal.SIGKILL)
    err.wait_for("a failure of inner: handled by owner.__supervise__()")
    assert lines(seen) == ["inner (1,) ProcessDied"]
    assert owner.ping.call_one().get(WAIT) == "here"


@pytest.mark.row("X3")
def test_ranks_that_die_together_are_one_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    monkeypatch.setattr(supervision, "_TOGETHER", 3.0)
    owner = proc_mesh(n=1).spawn("owner", Owner, "handle", str(tmp_path / "seen"))
    pids = owner.make.call_one(8).get(WAIT)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    err.wait_for("8 failures of inner: handled by owner")
    assert lines(tmp_path / "seen") == ["inner (0, 1, 2, 3, 4, 5, 6, 7) ProcessDied"]


@pytest.mark.parametrize("cls", [Owner, HalfAsyncOwner])
def test_an_owner_that_waits_in_a_call_is_asked_there(
    cls: type[Owner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    owner, pids, _ = own(tmp_path, "handle", cls)
    waiting = owner.wait_in_a_call.call_one(str(tmp_path / "gate"))
    os.kill(pids[1], signal.SIGKILL)
    err.wait_for("handled by owner.__supervise__()")
    (tmp_path / "gate").touch()
    assert waiting.get(WAIT) == "seen"


def test_an_async_owner_is_asked_while_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    owner, pids, _ = own(tmp_path, "handle", AsyncOwner)
    sleeping = owner.sleep.call_one()
    os.kill(pids[0], signal.SIGKILL)
    err.wait_for("handled by owner.__supervise__()")
    assert not sleeping.done()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "answer", "calls"),
    [
        (Owner, "wait", False),
        (Owner, "wait", True),  # the call that it was asked in ends with it
        (AsyncOwner, "wait", False),  # in a task, which blocks the loop
        (AsyncOwner, "await", False),
        (HalfAsyncOwner, "wait", True),
    ],
)
def test_an_owner_that_decides_is_interrupted_as_an_endpoint_is(
    cls: type[Owner], answer: str, calls: bool, tmp_path: Path
) -> None:
    mesh = proc_mesh(n=1, name="outer")
    owner = mesh.spawn("owner", cls, answer, str(tmp_path / "seen"))
    pids = owner.make.call_one().get(WAIT)
    waiting = owner.wait_in_a_call.call_one(str(tmp_path / "gate")) if calls else None
    os.kill(pids[1], signal.SIGKILL)
    wait_until(lambda: lines(tmp_path / "seen"), WAIT)
    mesh.stop(0.1).get(WAIT)
    assert lines(tmp_path / "seen")[1:] == ["interrupted", "cleaned up"]
    assert waiting is None or isinstance(waiting.exception(WAIT), MeshStopped)


@pytest.mark.slow
@pytest.mark.row("X1")
@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (
            "coroutine",
            "(creator of inner) returned a coroutine, which is not awaited: write `async def __supervise__`",
        ),
        ("pass on", "(creator of inner) did not handle the failure"),
        ("raise", "(creator of inner) raised in __supervise__(): LookupError: no spare"),
        ("block", "(creator of inner) made no decision within 0.3 s"),
    ],
)
def test_what_is_not_handled_is_raised_at_the_scripts_next_wait(
    answer: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer == "block":
        monkeypatch.setattr(supervision, "_DECIDE", 0.3)
    _, pids, seen = own(tmp_path, answer)
    other = proc_mesh(n=1).spawn("other", Owner, "")
    os.kill(pids[0], signal.SIGKILL)
    error = next_wait(other)
    assert isinstance(error, ProcessDied)
    assert (error.rank, error.signal) == (0, signal.SIGKILL)
    assert lines(seen) == ["inner (0,) ProcessDied"]
    assert note in "".join(getattr(error, "__notes__", [""]))
    assert other.ping.call_one().get(WAIT) == "here"  # once


@pytest.mark.row("X1")
def test_an_owner_that_dies_of_it_is_a_failure_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[MeshFailure] = []
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.append)
    _, pids, seen = own(tmp_path, "kill")
    other = proc_mesh(n=1).spawn("other", Owner, "")
    os.kill(pids[0], signal.SIGKILL)
    wait_until(lambda: other.ping.call_one().get(WAIT) == "here" and failures, WAIT)
    assert [failure.mesh_name for failure in failures] == ["outer"]  # what it had made has ended with it
    assert lines(seen) == ["inner (0,) ProcessDied"]


@pytest.mark.row("X1")
def test_it_goes_up_owner_by_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    seen = tmp_path / "seen"
    top = proc_mesh(n=1).spawn("top", Owner, "handle", str(seen))
    pids = top.make_owner.call_one("raise").get(WAIT)
    os.kill(pids[1], signal.SIGKILL)
    err.wait_for("a failure of inner: handled by top.__supervise__()")
    assert lines(seen) == ["inner (1,) ProcessDied"]


def test_an_owner_without_the_method_is_passed_by() -> None:
    owner = proc_mesh(n=1).spawn("owner", Careless)
    (pid,) = owner.make.call_one().get(WAIT)
    other = proc_mesh(n=1).spawn("other", Owner, "")
    os.kill(pid, signal.SIGKILL)
    assert isinstance(next_wait(other), ProcessDied)


def test_the_owners_own_end_ends_what_it_has_made_without_a_word_to_it(tmp_path: Path) -> None:
    owner, pids, seen = own(tmp_path, "handle")
    os.kill(owner.getpid.call_one().get(WAIT), signal.SIGKILL)
    assert isinstance(owner.ping.call_one().exception(WAIT), ProcessDied)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), WAIT)
    assert lines(seen) == []


# ---- the script


def test_a_wait_that_has_begun_is_told_too(tmp_path: Path) -> None:
    victim = proc_mesh(n=1, name="idle").spawn("victim", Echo)
    pid = victim.pid.call_one().get(WAIT)
    gate = tmp_path / "gate"
    waiting = proc_mesh(n=1).spawn("other", Echo).apply.call_one(wait_for, str(gate))
    threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(ProcessDied) as caught:
        waiting.get(WAIT)
    assert caught.value.place.mesh_id == victim._target.mesh_id
    assert str(caught.value).startswith("idle rank 0 (n=0) on ")
    (note,) = caught.value.__notes__
    assert note == (
        "This is an earlier, unhandled failure, raised at the next get(): the operation of this line has not failed, "
        "and you can wait for it again. To handle such failures, use __supervise__() of the owner or "
        "meshrt.unhandled_fault_hook (docs/supervision.md)."
    )
    gate.touch()
    assert waiting.get(WAIT) == "seen"


def test_an_await_is_told_too(tmp_path: Path) -> None:
    victim = proc_mesh(n=1).spawn("victim", Echo)
    pid = victim.pid.call_one().get(WAIT)
    other = proc_mesh(n=1).spawn("other", Echo).get(WAIT)

    async def main() -> None:
        waiting = other.apply.call_one(wait_for, str(tmp_path / "gate"))
        asyncio.get_running_loop().call_later(0.1, os.kill, pid, signal.SIGKILL)
        with pytest.raises(ProcessDied):
            await waiting
        (tmp_path / "gate").touch()
        assert await waiting == "seen"

    asyncio.run(main())


def test_a_call_to_the_lost_rank_fails_by_its_own_error_and_nothing_more() -> None:
    victims = proc_mesh(n=2).spawn("victim", Echo)
    pids = victims.pid.call().get(WAIT).values()
    other = proc_mesh(n=1).spawn("other", Echo)
    os.kill(pids[1], signal.SIGKILL)
    error = victims.echo.call(1).exception(WAIT)
    assert isinstance(error, ProcessDied) and error.endpoint == "echo"
    # Longer than what fails together is waited for.
    assert not holds_within(0.3, lambda: other.echo.call_one(1).exception(WAIT) is not None)


def parent_of(pid: int) -> int:
    return int(stat_fields(pid)[1])


def test_the_hook_decides_instead_of_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[MeshFailure] = []
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.append)
    victims = proc_mesh(n=3, name="victims").spawn("victim", Echo)
    pids = victims.pid.call().get(WAIT).values()
    other = proc_mesh(n=1).spawn("other", Echo)
    agent = parent_of(pids[0])
    with paused(agent):  # until both are dead: it finds them together
        for pid in pids[1:]:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: kernel_state(pid) in "ZX", WAIT)  # noqa: B023 - used at once
    wait_until(lambda: other.echo.call_one(1).get(WAIT) == 1 and failures, WAIT)
    (failure,) = failures
    assert (failure.mesh_name, failure.ranks) == ("victims", (1, 2))
    assert failure.report().startswith("victims has failed:\n  rank 1 (n=1) on ")
    victims.slice(n=0).apply.broadcast(fail)
    wait_until(lambda: other.echo.call_one(1).get(WAIT) == 1 and len(failures) == 2, WAIT)
    assert isinstance(failures[1].error, ActorError)


def test_the_hook_is_called_for_what_fails_just_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[MeshFailure] = []
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.append)
    pids = proc_mesh(n=2, name="victims").spawn("victim", Echo).pid.call().get(WAIT).values()
    root, gone = running_root(), threading.Event()
    assert root is not None

    def note(*_: object) -> None:
        asyncio.get_running_loop().call_soon(gone.set)

    root.services.rank_gone.append(note)
    os.kill(pids[1], signal.SIGKILL)
    assert gone.wait(WAIT)
    meshrt.shutdown_context(0.5)  # before it is decided who is told: what fails together is waited for
    assert [(failure.mesh_name, failure.ranks) for failure in failures] == [("victims", (1,))]


def test_a_lost_host_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[MeshFailure] = []
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", failures.append)
    mesh = proc_mesh(hosts=2, gpus=2, engine=meshrt.LocalEngine(2))
    pids = mesh.spawn("victim", Echo).pid.call().get(WAIT).values()
    agent = parent_of(pids[0])
    other = proc_mesh(n=1).spawn("other", Echo).get(WAIT)
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: other.echo.call_one(1).get(WAIT) == 1 and failures, WAIT)
    (failure,) = failures
    assert failure.ranks == (0, 1)
    assert {type(error) for error in failure.errors} == {HostLost}


# ---- how the program ends


def ends(tmp_path: Path, *body: str) -> tuple[int, str]:
    """Run a script whose mesh ``outer`` has an ``owner``; return its exit status and what it said."""
    text = "\n".join(
        (
            "import os, signal, threading, meshrt",
            "from meshrt import *",
            "from tests.functional.test_supervision import Owner, asked_about, fail",
            "from tests.support.actors import Echo",
            "if __name__ == '__main__':",
            *(f"    {line}" for line in body),
        )
    )
    script = tmp_path / "script.py"
    script.write_text(text + "\n")
    done = run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    return done.returncode, done.stderr


MAKE = "owner = proc_mesh(n=1).spawn('owner', Owner, {!r}, '/dev/null'); pids = owner.make.call_one().get(20)"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "status"), [("handle", 0), ("pass on", 1)])
def test_an_exception_that_nobody_waits_for_is_the_owners(answer: str, status: int, tmp_path: Path) -> None:
    asked = str(tmp_path / "asked")
    code, err = ends(
        tmp_path,
        MAKE.format(answer).replace("/dev/null", asked),
        "owner.broadcast_a_failure.call_one().get(20)",
        # What the root hears of when the program ends already is asked of nobody.
        f"while asked_about({asked!r}) != {{0, 1}}: owner.ping.call_one().get(20)",
        "owner.ping.call_one().get(20)",
    )
    assert code == status
    assert ("ROOT CAUSE" in err) == bool(status)


def test_a_rank_that_nobody_was_told_of_is_reported_at_the_end(tmp_path: Path) -> None:
    code, err = ends(
        tmp_path,
        "mesh = proc_mesh(n=2, name='mine')",
        "pids = mesh.spawn('echo', Echo).pid.call().get(20).values()",
        "os.kill(pids[1], signal.SIGKILL)",
        "from meshrt.mesh.program import start_root",
        "while start_root().registry.meshes[mesh.mesh_id].alive() == [0, 1]: pass",
    )
    assert code == 1
    assert "what     was killed by SIGKILL" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("SystemExit", "no more: MeshFailure of mine: rank 1 (n=1) on "),
        ("ValueError", "ValueError: no more: MeshFailure of mine:"),
    ],
)
def test_a_hook_that_raises_ends_the_script(error: str, said: str, tmp_path: Path) -> None:
    code, err = ends(
        tmp_path,
        f"def hook(failure): raise {error}(f'no more: {{failure}}')",
        "meshrt.unhandled_fault_hook = hook",
        "pids = proc_mesh(n=2, name='mine').spawn('echo', Echo).pid.call().get(20).values()",
        "other = proc_mesh(n=1).spawn('other', Echo)",
        "os.kill(pids[1], signal.SIGKILL)",
        "while True: other.echo.call_one(1).get(20)",
    )
    assert code == 1
    assert said in err
    # Its own line, and that of the wait.
    assert err.count("  File ") == (0 if error == "SystemExit" else 2) and str(ROOT / "meshrt") not in err


def test_what_an_owner_raises_about_a_failure_follows_from_it(tmp_path: Path) -> None:
    code, err = ends(
        tmp_path,
        MAKE.format("raise"),
        "os.kill(pids[1], signal.SIGKILL)",
        "while True: owner.ping.call_one().get(20)",
    )
    assert code == 1
    assert "1 x LookupError: no spare" in err and "reason: it handles the failure of rank 1 of inner" in err
    assert "ROOT CAUSE  worker rank 1 (n=1) on " in err and "[certain: " in err


# ---- __cleanup__


class Cleaned(Actor):
    def __init__(self, path: str) -> None:
        self.path = path

    @endpoint
    async def exit_in_a_task(self) -> None:
        async def leave() -> None:
            raise SystemExit(3)

        self.task = asyncio.create_task(leave())

    def __cleanup__(self, exc: BaseException | None) -> None:
        Path(self.path).write_text(f"{type(exc).__name__}: {exc}")


def test_cleanup_is_told_what_has_ended_the_block(tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    mesh = proc_mesh(n=1)
    mesh.spawn("cleaned", Cleaned, str(path)).get(WAIT)
    with pytest.raises(KeyError), mesh:
        raise KeyError("lr")
    assert path.read_text() == "MeshError: the block of the actor has ended with KeyError: 'lr'"


def test_cleanup_is_told_what_has_ended_the_actors_block(tmp_path: Path) -> None:
    path, plain = tmp_path / "actor", tmp_path / "plain"
    mesh = proc_mesh(n=1)
    with pytest.raises(KeyError), mesh.spawn("cleaned", Cleaned, str(path)).get(WAIT):
        raise KeyError("lr")
    with mesh.spawn("plain", Cleaned, str(plain)).get(WAIT):
        pass
    assert path.read_text() == "MeshError: the block of the actor has ended with KeyError: 'lr'"
    assert plain.read_text() == "NoneType: None"


def test_cleanup_is_told_what_has_ended_the_rank(tmp_path: Path) -> None:
    path = tmp_path / "exit"
    cleaned = proc_mesh(n=1).spawn("cleaned", Cleaned, str(path))
    cleaned.exit_in_a_task.call_one().exception(WAIT)
    wait_until(lambda: path.exists() and path.read_text() == "SystemExit: 3", WAIT)


class Lengthy(Cleaned):
    """The end of its rank finds ``__cleanup__`` running: it waits for that at the step before it interrupts calls."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        begun = self.begun = threading.Event()
        cancel = Mailbox.cancel

        def late(mailbox: Mailbox, *, cleanup: bool) -> None:
            assert begun.wait(WAIT)
            cancel(mailbox, cleanup=cleanup)

        Mailbox.cancel = late  # type: ignore[method-assign, assignment]

    def clean(self, exc: BaseException | None) -> None:
        Cleaned.__cleanup__(self, exc)


class LengthyInTheLoop(Lengthy):
    async def __cleanup__(self, exc: BaseException | None) -> None:  # type: ignore[override]
        self.begun.set()
        for _ in range(100):
            await asyncio.sleep(0.005)
        self.clean(exc)


class LengthyOutsideOfIt(Lengthy):
    def __cleanup__(self, exc: BaseException | None) -> None:
        self.begun.set()
        for _ in range(100):
            time.sleep(0.005)
        self.clean(exc)


@pytest.mark.parametrize("actor", [LengthyInTheLoop, LengthyOutsideOfIt])
def test_what_ends_a_call_at_once_lets_a_cleanup_that_has_begun_finish(actor: type[Lengthy], tmp_path: Path) -> None:
    path = tmp_path / "exit"
    cleaned = proc_mesh(n=1).spawn("cleaned", actor, str(path))
    cleaned.exit_in_a_task.call_one().exception(WAIT)
    wait_until(lambda: path.exists() and path.read_text() == "SystemExit: 3", WAIT)


def test_the_page_shows_what_the_example_prints() -> None:
    def masked(text: str) -> list[str]:
        return sorted(re.sub(r" on \S+, pid \d+", " on N, pid P", text).splitlines())

    page = (ROOT / "docs" / "supervision.md").read_text(encoding="utf-8")
    shown = page.partition("$ python examples/supervised.py\n")[2].partition("```")[0]
    done = run_python("examples/supervised.py", cwd=ROOT)
    assert done.returncode == 0
    assert masked(done.stdout + done.stderr) == masked(shown)
