"""What is said to somebody who is tired: near misses, what cannot be, and where a typed line went."""

from __future__ import annotations

import asyncio

import pytest

from meshrt import Actor, ActorMesh, concurrent_endpoint, endpoint, proc_mesh
from meshrt.debug.operations import AttachedReport
from meshrt.debug.prompt.attached import Attached
from tests.debug.harness import attached, person
from tests.support.markers import marked_line

WAIT = 20


def measured(sizes: list[int]) -> int:
    breakpoint()  # @measured
    return sum(sizes)


class Tired(Actor):
    def __init__(self) -> None:
        self.answer: asyncio.Future[str] | None = None
        self.config = {"lr": 0.1, "steps": 7}

    @endpoint
    async def wait(self) -> str:
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer  # @wait

    @concurrent_endpoint
    async def step(self, number: int) -> int:
        local = number + 1
        return local  # @step

    @concurrent_endpoint
    async def stop_and_wait(self) -> str:
        breakpoint()  # @stop
        return await self.wait()

    @endpoint
    def measure(self) -> int:
        return measured([len(self.config)])

    @endpoint
    def vary(self, rank: int) -> None:
        self.config["lr"] = 0.1 * (rank == 1) + 0.2


def line_of(name: str) -> int:
    return marked_line(__file__, name)


@pytest.fixture
def tired() -> ActorMesh[Tired]:
    return proc_mesh(gpus=2).spawn("tired", Tired).get(WAIT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("interrupt tired 1", "write ranks as ranks(1)"),
        ("logs tired 0:2", "write ranks as ranks(0:2)"),
        ("attach 1", "the actor is missing"),
        ("list bloked", "did you mean 'blocked'"),
        ("break test_hints.py", "the line is missing; expected test_hints.py:LINE"),
        ("break test_hint.py:3", "did you mean test_hints.py?"),
        ("break tempfil.py:3", "pending: not loaded yet; the breakpoint is set when this code is loaded"),
        ("break test_hints.py:3, rank ==", "invalid syntax\n  rank ==\n         ^"),
        ("p tired rank(1) self.config", "did you mean ranks(1) self.config?"),
        ("p tired nothing", "for locals: interrupt tired"),
        ("p tired ranks(1) nothing", "for locals: interrupt tired ranks(1)"),
        ("vars self.config -n 2", "options such as -n must directly follow the command; usage: vars"),
        ("detach", "no rank is attached"),
        ("lst", "did you mean 'list'"),
        ("attach tired/Nobody 1", "tired/Nobody rank 1 is not stopped"),
    ],
)
def test_what_a_slip_is_answered_with(tired: ActorMesh[Tired], line: str, said: str) -> None:
    with person() as me:
        assert said in me(line)
        me("clear all")


def test_a_rank_that_was_let_go_is_not_attached_to(tired: ActorMesh[Tired]) -> None:
    result = tired.stop_and_wait.call()
    with person() as me:
        me.wait("tired")
        assert me("interrupt tired") == "2 ranks of tired (0-1): stopped already\n" and me.ok
        me("continue tired ranks(1)")
        assert "rank 1 was resumed and is running; to stop it: interrupt tired ranks(1)" in me("attach tired 1")
        me.until("list blocked", f"test_hints.py:{line_of('wait')}")
        # What an expression has done is seen by the event loop, which waits for nothing else.
        me.until("p tired ranks(1) self.answer is not None", "[1] True")
        me("p tired ranks(1) self.answer.set_result('told')")
        me("continue")
        me.until("p tired ranks(0) self.answer is not None", "[0] True")
        me("p tired ranks(0) self.answer.set_result('told')")
    assert result.get(WAIT).values() == ["told", "told"]


def test_a_resumed_rank_that_waits_where_it_was_stopped_is_blocked_again(tired: ActorMesh[Tired]) -> None:
    result = tired.wait.call()
    with person() as me:
        me.until("list blocked", "(wait)")
        me("interrupt tired ranks(0)")
        me.until("status", "tired 0: stopped")
        me("continue")
        me.until("status", "tired 0-1: blocked")
        me("p tired self.answer.set_result('x')")
    assert result.get(WAIT).values() == ["x", "x"]


def test_what_was_typed_for_a_rank_does_not_reach_the_mesh(
    tired: ActorMesh[Tired], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tired.stop_and_wait.call()
    with attached("tired", 1) as me:
        me("n")
        with monkeypatch.context() as patch:
            take = Attached._take

            def resumed(rank: Attached, event: AttachedReport | None) -> None:
                take(rank, event)
                if event is not None and event.kind == "resumed":  # before, it would be at work on the line
                    patch.setattr("meshrt.debug.prompt.attached.COMMAND_SECONDS", 0.3)

            patch.setattr(Attached, "_take", resumed)
            assert "tired 1 is running; its next stop will be announced" in me("n")  # over a wait that does not end
        assert me.prompt == "meshrt_dbg> " and me.terminal.forgotten == 1
        me("attach tired 0")
        me("detach")
        assert me.terminal.forgotten == 1
        me("continue")
        me.until("p tired self.answer is not None", "[0-1] True")
        me("p tired self.answer.set_result('x')")
        me.wait("tired", "ranks(1)")  # its step has come to an end
        me("continue")
    assert result.get(WAIT).values() == ["x", "x"]


def test_a_condition_that_fails_is_named_where_the_stop_is(tired: ActorMesh[Tired]) -> None:
    with person() as me:
        me(f"break test_hints.py:{line_of('step')}, locl > 5")
        result = tired.step.call(1)
        me.wait("tired")
        me.heard("by breakpoint 1 (condition 'locl > 5' of breakpoint 1 raised NameError: name 'locl' is not defined)")
        me("cast tired ranks(0:2) p number")  # what was written before is gone
        said = "condition 'locl > 5' of breakpoint 1 raised NameError: name 'locl' is not defined"
        assert f"{said}: tired 0-1" in me("list")
        assert "[0-1] the condition raised NameError: name 'locl' is not defined" in me("breaks")
        assert f"{said}\n" in me("attach tired 0")
        me("detach")
        me("clear all")
        me("continue")
    assert result.get(WAIT).values() == [2, 2]


def test_a_name_that_is_not_known_where_a_rank_stands(tired: ActorMesh[Tired]) -> None:
    result = tired.slice(gpus=1).measure.call_one()
    with person() as me:
        me.wait("tired", "ranks(1)")
        place = f"where the rank is stopped, in measured(), test_hints.py:{line_of('measured')}"
        known = "self is known in measure(): cast ACTOR ranks(...) u 1"
        assert f"[1] *** NameError: name 'self' is not defined (looked up {place}; {known})\n" in me(
            "p tired self.config"
        )
        assert f"(looked up {place})" in me("p tired ranks(1) nothing")
        assert "looked up" not in me("cast tired ranks(1) nothing = nobody")
        me("cast tired ranks(1) u 1")
        assert me("p tired self.config['steps']") == "[0-1] 7\n"
        me("continue")
    assert result.get(WAIT) == 2


def test_a_rank_alone_is_shown_with_the_coordinates_of_its_mesh(tired: ActorMesh[Tired]) -> None:
    result = tired.slice(gpus=1).stop_and_wait.call_one()
    with person() as me:
        me.wait("tired", "ranks(1)")
        assert "{'gpus': 1}" in me("list")
        me("attach tired 1")
        assert me.prompt == "(tired 1 gpus=1) "
        me("c")
        me.until("p tired ranks(1) self.answer is not None", "[1] True")
        me("p tired ranks(1) self.answer.set_result('x')")
    assert result.get(WAIT) == "x"


def test_dicts_are_compared_item_by_item(tired: ActorMesh[Tired]) -> None:
    for rank in range(2):
        tired.slice(gpus=rank).vary.call_one(rank).get(WAIT)
    with person() as me:
        shown = me("p --diff 0 tired self.config")
        assert "[1] items that differ: 1" in shown and "'lr': 0.3" in shown and "steps" not in shown.split("[1]")[1]
