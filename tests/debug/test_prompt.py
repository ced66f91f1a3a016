"""What can be typed at the prompt of a rank beside pdb's own words, and where else a rank may be told to stop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

import meshrt
from meshrt import Actor, ActorError, current_rank, endpoint, proc_mesh
from meshrt.debug.rank_operations import Evaluate, Input, Stopped
from meshrt.inspect.facts import ArrayFacts, NumberFacts
from tests.debug.desk import WAIT, Desk, desk
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until


class Stops(Actor):
    def __init__(self) -> None:
        self.event: Any = None
        self.other: Any = None

    @endpoint
    def know(self, other: Any) -> None:
        self.other = other

    @endpoint
    async def wait(self) -> int:
        self.event = asyncio.Event()
        own = asyncio.get_running_loop().create_future()
        value = 5
        breakpoint()
        own.cancel()
        return await self.twice(value)

    async def twice(self, value: int) -> int:
        await asyncio.sleep(0)
        return 2 * value

    @endpoint
    def arrays(self) -> float:
        weights = numpy.arange(1000.0)
        breakpoint()
        return float(weights[0])

    @endpoint
    def chosen(self, ranks: str, when: Any) -> int:
        total = 0
        for i in range(3):
            total += i
            stops = True if when is None else lambda i=i: i == when
            meshrt.breakpoint(when=stops, ranks=ranks, header="look here")
        return total

    @endpoint
    async def forever(self) -> None:
        await asyncio.Event().wait()

    @endpoint
    def ask(self) -> int:
        return int(current_rank().rank)


def test_await_at_the_prompt() -> None:
    procs = proc_mesh(gpus=2)
    worker = procs.spawn("worker", Stops).get(WAIT)
    one = worker.slice(gpus=0)
    one.know.call_one(worker).get(WAIT)
    with desk() as root:
        answer = one.wait.call_one()
        root.stopped()
        assert root.show("p await self.twice(4)").text == "8\n"
        assert root.show("await self.twice(5)").text == "10\n"
        root.show("!got = await self.twice(value)")
        assert root.show("p got").text == "10\n"
        root.show("!value = await self.twice(10)")
        stop = root.show("p await own")
        assert "belongs to the actor's own event loop" in stop.text
        assert stop.error.startswith("RuntimeError: ")
        assert "ZeroDivisionError" in root.show("await self.twice(1 / 0)").text
        assert "SyntaxError" in root.show("p await").text
        assert root.show("p asyncio.get_running_loop() is not None").text == "True\n"
        assert root.show("p await self.other.slice(gpus=1).ask.call_one()").text == "0\n"
        root.let_go()
        assert answer.get(WAIT) == 40


def test_an_await_that_hangs_is_broken_by_an_interrupt() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        seq = root.stopped().seq
        root.type("await asyncio.Event().wait()")
        # Not before its line has come to an end: a line that was typed is never passed over.
        assert not root.ask(Input("worker", "", seq, resume=True)).accepted
        assert root.interrupt().text.strip().endswith("*** KeyboardInterrupt")
        assert root.show("p await self.twice(value)").text == "10\n"
        root.let_go()
        assert answer.get(WAIT) == 10


def test_a_time_out_that_is_typed_ends_while_those_of_the_program_are_suspended() -> None:
    procs = proc_mesh(gpus=2)
    worker = procs.spawn("worker", Stops).get(WAIT)
    one, other = worker.slice(gpus=0), worker.slice(gpus=1)
    one.know.call_one(other).get(WAIT)
    with desk() as root:
        answer = one.wait.call_one()
        root.stopped()
        root.show("!hangs = self.other.forever.call()")
        assert "CallTimeout: " in root.show("hangs.get(timeout=0.05)").text
        assert "CallTimeout: " in root.show("await self.other.forever.options(timeout=0.05).call()").text
        assert root.show("p hangs.exception(timeout=0.05)").text.startswith("CallTimeout(")
        root.show("!hangs.cancel()")
        root.let_go()
        assert answer.get(WAIT) == 10


def test_what_a_typed_line_logs_is_shown_at_the_prompt() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        root.stopped()
        assert root.show("!import logging; logging.getLogger('typed').warning('here')").text == "here\n"
        root.let_go()
        assert answer.get(WAIT) == 10


def gated(root: Desk, folder: Path) -> tuple[Path, Path]:
    """Have ``places`` at the prompt, the paths that are returned, and ``iterate()``, which waits for the second one."""
    inside, gate = folder / "inside", folder / "gate"
    root.stopped()
    root.show(f"!places = [__import__('pathlib').Path(name) for name in {[str(inside), str(gate)]}]")
    root.show("!iterate = lambda places=places: iter(places[1].exists, True)")
    return inside, gate


def interrupt_await(root: Desk, inside: Path, gate: Path) -> None:
    """Begin to await what never comes, and interrupt it between both."""
    root.type("await asyncio.Event().wait()")
    wait_until(inside.exists, WAIT)
    assert root.request_stop().state == "asked"
    gate.touch()
    assert root.stopped().text == "*** KeyboardInterrupt\n"


def test_an_interrupt_waits_until_the_loop_of_an_await_is_there(tmp_path: Path) -> None:
    """Half a loop is none, and the actor's own has to run again."""
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        inside, gate = gated(root, tmp_path)
        root.show("!make = asyncio.new_event_loop")
        root.show("!slow = lambda make=make, i=iterate, p=places: (p[0].touch(), list(i()), make())[-1]")
        root.show("!asyncio.new_event_loop = slow")
        interrupt_await(root, inside, gate)
        root.show("!asyncio.new_event_loop = make")
        assert root.show("p await self.twice(value)").text == "10\n"
        root.let_go()
        assert answer.get(WAIT) == 10


def test_a_line_is_broken_that_has_come_and_not_begun(tmp_path: Path) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        inside, gate = gated(root, tmp_path)
        root.show("!from meshrt.debug.rank.pdb_adapter import PdbAdapter")
        root.show("!PdbAdapter.precmd = lambda _, line, i=iterate, p=places: (p[0].touch(), list(i()), line)[-1]")
        interrupt_await(root, inside, gate)
        root.let_go()
        assert answer.get(WAIT) == 10


def test_an_await_that_hangs_ends_with_the_program() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.wait.call_one()
        root.stopped()
        root.type("await asyncio.Event().wait()")
        meshrt.shutdown_context(5)
        with pytest.raises(Exception, match=r"stopped|BdbQuit"):
            answer.get(WAIT)


def test_values_for_a_comparison() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.arrays.call_one()
        assert root.stopped().facts is None
        stop = root.show("p weights", brief=True)
        assert stop.text == "ndarray 1000 float64, min 0, max 999, mean 499.5\n"
        assert isinstance(stop.facts, ArrayFacts) and stop.facts.mean == 499.5
        stop = root.show("pp weights[3]", brief=True)
        assert stop.facts == NumberFacts(3.0)
        stop = root.show("p weights")
        assert stop.facts is None
        assert stop.text.startswith("array([")
        stop = root.show("p nothing", brief=True)
        assert stop.facts is None and stop.error.startswith("NameError: name 'nothing' is not defined (looked up ")
        root.let_go()
        assert answer.get(WAIT) == 0.0


@pytest.mark.slow
def test_a_breakpoint_for_some_ranks() -> None:
    worker = proc_mesh(hosts=2, gpus=2).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        answer = worker.chosen.call("hosts=1, gpus=0", 1)
        stop = root.stopped(rank=2)
        assert stop.text.startswith("look here\n> ")
        assert stop.place.function == "chosen"
        assert root.show("p i", rank=2).text == "1\n"
        root.let_go(rank=2)
        assert answer.get(WAIT).values() == [3] * 4
        assert root.quiet(Stopped)
        answer = worker.slice(hosts=1).chosen.call("0", 2)
        root.stopped(rank=2)
        root.let_go(rank=2)
        assert answer.get(WAIT).values() == [3] * 2
        with pytest.raises(ActorError, match=r"no dimension 'pods'.*hosts.*gpus"):
            worker.chosen.call("pods=1", None).get(WAIT)


SCRIPT = """
import meshrt, sys
def f():
    x = 5
    meshrt.breakpoint(when=False)
    meshrt.breakpoint(ranks="gpus=1", header="hello")
    y = 6
f()
print("done")
"""


def test_outside_of_a_rank_it_is_pythons_own() -> None:
    done = run_python("-c", SCRIPT, input="p x\nn\np y\nc\n")
    assert "hello" in done.stdout
    assert "(Pdb) 5" in done.stdout
    assert "meshrt/actor" not in done.stdout
    assert "done" in done.stdout
    quiet = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment(PYTHONBREAKPOINT="0"),
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=True,
    )
    assert quiet.stdout == "done\n"


def test_the_answer_can_be_sent() -> None:
    """Facts are data that a terminal prints as JSON."""
    worker = proc_mesh(gpus=1).spawn("worker", Stops).get(WAIT)
    with desk() as root:
        worker.ask.call_one().get(WAIT)
        answer = root.ask(Evaluate("worker", "p", "numpy.ones((2, 3)) * float('nan')"))
        assert json.loads(json.dumps(msgspec.to_builtins(answer.per)))["nan"] == 6
