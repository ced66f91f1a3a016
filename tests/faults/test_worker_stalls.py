"""Ranks that do not answer and are not dead: stopped by a signal, busy in C, blocked in their event loop."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from meshrt import ActorError, CallTimeout, LocalEngine, ProcessDied, proc_mesh
from tests.faults.actors import AsyncVictim, Victim
from tests.faults.watch import LONG, agents_with, all_gone, is_alive
from tests.support.pausing import paused
from tests.support.screen import Screen
from tests.support.waiting import wait_until

ENGINES = [pytest.param(None, id="default"), pytest.param(LocalEngine(2), id="two-agents")]
#: Longer than any wait of the runtime after which a closed connection counts as lost (2 s).
SUSPICIOUS = 2.5


@pytest.mark.row("P5")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_stopped_rank_is_not_dead(engine: LocalEngine | None) -> None:
    """The call's own time-out is the only limit, and the late answer is delivered."""
    victims = proc_mesh(hosts=2, gpus=1, engine=engine).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    with paused(pids[1]):
        call = victims.echo.call("late")
        with pytest.raises(CallTimeout) as caught:
            call.get(SUSPICIOUS)
        assert [place.rank for place in caught.value.missing] == [1]
        assert victims.slice(hosts=0).echo.call_one("here").get(LONG) == "here"
        assert not call.done()
    assert call.get(LONG).values() == ["late", "late"]
    assert victims.pid.call().get(LONG).values() == pids


@pytest.mark.row("P5")
def test_a_stopped_rank_can_be_killed() -> None:
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    with paused(pids[0]):
        call = victims.echo.call(1)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(ProcessDied):
            call.get(LONG)


@pytest.mark.row("P5")
def test_stop_ends_a_stopped_rank() -> None:
    mesh = proc_mesh(n=2)
    pids = mesh.spawn("victim", Victim).pid.call().get(LONG).values()
    with paused(pids[0]):
        begin = time.monotonic()
        mesh.stop(0.5)
        assert time.monotonic() - begin < 0.5 + 1 + 4
        all_gone(pids, 1)


@pytest.mark.row("N6")
def test_calls_to_a_stopped_rank_do_not_fill_the_memory() -> None:
    """The sender waits when its share of the queue is used; the other ranks go on meanwhile."""
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    slow, quick = victims.slice(n=0), victims.slice(n=1)
    sent = 0
    calls = []

    def send() -> None:
        nonlocal sent
        for _ in range(200):
            calls.append(slow.keep.call_one(bytes(100_000)))
            sent += 1

    with paused(pids[0]):
        thread = threading.Thread(target=send)
        thread.start()
        seen = -1
        while seen != sent:  # it stands still when two looks, half a second apart, see the same
            seen = sent
            threading.Event().wait(0.5)
        assert 0 < sent < 100
        assert quick.echo.call_one("here").get(LONG) == "here"
    thread.join(LONG)
    assert not thread.is_alive()
    assert calls[-1].get(LONG) == 200


@pytest.mark.row("P6")
def test_a_rank_that_holds_the_gil_is_not_dead() -> None:
    """No thread of the rank runs; nobody declares it dead, and it answers in the end."""
    victims = proc_mesh(n=2).spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    call = victims.slice(n=0).hold_gil.call_one(SUSPICIOUS)
    with pytest.raises(CallTimeout):
        call.get(0.2)
    assert victims.slice(n=1).echo.call_one(1).get(LONG) == 1
    assert call.get(2 * LONG) == "done"
    assert victims.pid.call().get(LONG).values() == pids


@pytest.fixture
def quick_pulse(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank is asked twenty times a second whether it lives, and is taken for busy soon."""
    agents_with("pulse._INTERVAL = 0.05; pulse.BUSY_SECONDS = 4.0", tmp_path_factory.mktemp("agent"), monkeypatch)


def read_in_c(fifo: str) -> str:
    """Wait for ``fifo`` to be opened, in C code that does not give the GIL away."""
    ctypes.PyDLL(None).open(fifo.encode(), os.O_RDONLY)
    return "done"


@pytest.mark.row("P5", "P6")
@pytest.mark.usefixtures("quick_pulse")
def test_who_is_silent_is_told_with_the_reason_and_so_is_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank stopped, one busy in C, and one that blocks no more than its event loop: that one is not silent."""
    screen = Screen.instead_of("stderr", monkeypatch)
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    mesh = proc_mesh(n=3)
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    blocked = mesh.slice(n=0).spawn("blocked", AsyncVictim)
    blocking = blocked.block.call_one(str(tmp_path / "gate"), str(tmp_path / "inside"))
    wait_until((tmp_path / "inside").exists, LONG)
    with paused(pids[1]):
        kept = victims.slice(n=1).keep.call_one("late")
        busy = victims.slice(n=2).apply.call_one(read_in_c, fifo)
        screen.wait_for("rank 1 (n=1)")
        text = screen.wait_for("C code holds its GIL\nstack (most recent call first):")
        assert f"pid {pids[1]} does not answer: its process was stopped by a signal (SIGCONT resumes it)\n" in text
        assert f"pid {pids[2]} does not answer: C code holds its GIL\n" in text
        wait_until(lambda: "in read_in_c" in screen.text, LONG)
        assert not kept.done() and not busy.done()
    screen.wait_for(f"pid {pids[1]} answers again\n")
    assert kept.get(LONG) == 1
    assert f"pid {pids[2]} answers" not in screen.text
    with open(fifo, "wb"):
        assert busy.get(LONG) == "done"
    screen.wait_for(f"pid {pids[2]} answers again\n")
    assert not blocking.done()
    (tmp_path / "gate").touch()
    assert blocking.get(LONG) == "blocked"
    assert not re.search(rf"pid {pids[0]}\b", screen.text)
    # What was sent to the stopped rank has been run once, and answered once.
    assert victims.slice(n=1).all_kept.call_one().get(LONG) == ["late"]
    assert victims.pid.call().get(LONG).values() == pids


@pytest.mark.row("P6")
def test_stop_ends_a_rank_that_holds_the_gil() -> None:
    mesh = proc_mesh(n=1)
    victims = mesh.spawn("victim", Victim)
    pids = victims.pid.call().get(LONG).values()
    call = victims.hold_gil.call_one(60)
    assert call.exception(0.3) is not None
    begin = time.monotonic()
    mesh.stop(0.2)
    assert time.monotonic() - begin < 0.2 + 1 + 4
    all_gone(pids, 1)
    with pytest.raises((ProcessDied, RuntimeError)):
        call.get(LONG)


@pytest.mark.row("P7")
def test_an_async_endpoint_that_blocks_its_loop(tmp_path: Path) -> None:
    """Its own actor waits; the control thread and the other actors of the rank do not."""
    mesh = proc_mesh(n=1)
    blocked = mesh.spawn("blocked", AsyncVictim).get(LONG)
    beside = mesh.spawn("beside", Victim).get(LONG)
    call = blocked.block.call_one(str(tmp_path / "gate"), str(tmp_path / "inside"))
    wait_until((tmp_path / "inside").exists, LONG)
    waiting = blocked.pid.call_one()
    assert beside.echo.call_one(1).get(LONG) == 1
    # A new actor needs the control thread to take its connection.
    assert mesh.spawn("another", Victim).pid.call_one().get(LONG) == beside.pid.call_one().get(LONG)
    assert not waiting.done() and not call.done()
    (tmp_path / "gate").touch()
    assert call.get(LONG) == "blocked" and is_alive(waiting.get(LONG))


@pytest.mark.row("X5")
def test_an_actor_that_calls_itself_gets_its_time_out() -> None:
    """The deadlock ends in the time-out of the inner call, and the actor answers again."""
    victims = proc_mesh(n=1).spawn("victim", Victim)
    with pytest.raises(ActorError) as caught:
        victims.call_itself.call_one(victims).get(LONG)
    assert caught.value.remote.type == "meshrt.errors.CallTimeout"
    assert "victim.pid()" in caught.value.remote.message
    assert victims.echo.call_one(1).get(LONG) == 1


@pytest.mark.row("X5")
def test_a_cycle_of_two_actors_gets_its_time_out() -> None:
    mesh = proc_mesh(n=2)
    first = mesh.slice(n=0).spawn("first", Victim)
    second = mesh.slice(n=1).spawn("second", Victim)

    def through(other: Victim, back: Victim) -> object:
        return other.apply.call_one(ask, back).get(LONG)  # type: ignore[attr-defined]

    def ask(back: Victim) -> object:
        return back.pid.call_one().get(timeout=0.3)  # type: ignore[attr-defined]

    with pytest.raises(ActorError) as caught:
        first.apply.call_one(through, second, first).get(LONG)
    assert "no answer within 0.3 s" in str(caught.value)
    assert first.echo.call_one(1).get(LONG) == second.echo.call_one(1).get(LONG) == 1
