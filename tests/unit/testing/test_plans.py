"""A plan of faults, with a root that is a fake: what it brings to ranks, and what it says at its end."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.errors import MeshError, UsageError
from meshrt.faults.operations import Armed, BeginOnRank, EndOnRank, LookOnRank, Planned, Seen
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.fate import Fate
from meshrt.hooks.plugins import plugins
from meshrt.hooks.snapshot import MeshFacts
from meshrt.mesh.proc_mesh import ProcMesh
from meshrt.selection import Extent, Shape
from meshrt.testing import plans
from meshrt.testing.declared import Fault, call, cut, kill, stop
from meshrt.testing.plans import FaultPlan, faults
from meshrt.transport.kernel import is_stopped
from tests.support.pausing import pause
from tests.support.waiting import wait_until

SHAPE = Shape.from_extent(Extent(("gpus",), (4,)))


class Mesh(ProcMesh):
    """A mesh whose processes are there."""

    def __init__(self) -> None:
        super().__init__("m", "train", SHAPE, None, None)  # type: ignore[arg-type]  # nothing is called

    @property
    def initialized(self) -> Any:
        return SimpleNamespace(get=lambda: None)


class Program:
    """The root: its services, and the side of the plug-in."""

    def __init__(self) -> None:
        self.services = SimpleNamespace(tables={"faults": self}, mesh=lambda _: self.facts)
        queues = SimpleNamespace(when_written=lambda _mesh, seconds, action: action(seconds))
        self.runtime = SimpleNamespace(driver=SimpleNamespace(queues=queues))
        self.facts: MeshFacts | None = MeshFacts("m", "train", SHAPE, pids={0: 10, 1: 11, 2: 12, 3: 13})
        self.asked: list[object] = []
        self.planned: Sequence[Planned] = ()
        self.begun: list[Answered[Armed, None] | Unanswered] = []
        #: The answers of ranks to one question after the other, the last one for all further ones.
        self.seen: list[Mapping[int, Seen]] = [{}]
        self.told: Callable[[int, int], None] = lambda _number, _rank: None

    def begin(self, plan: str, mesh_id: str, planned: Sequence[Planned], told: Callable[[int, int], None]) -> object:
        self.asked.append(BeginOnRank(plan, planned))
        self.planned, self.told = planned, told
        return self.begun

    def ask(self, mesh_id: str, ranks: Sequence[int], operation: object) -> object:
        self.asked.append(operation)
        seen = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        return [Answered("m", tuple(seen), None, seen)]

    def forget(self, plan: str) -> None:
        self.asked.append("forgotten")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program()
    monkeypatch.setattr(plans, "running_root", lambda: made)
    monkeypatch.setattr(plugins, "load", lambda *_args, **_more: True)
    return made


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as started:
        yield started.pid
        started.kill()


def begun(program: Program, *planned: Fault) -> FaultPlan:
    plan = FaultPlan(*planned)
    plan.begin(Mesh())
    return plan


def test_what_ranks_are_told(program: Program) -> None:
    begun(program, kill([0, 3], at=call("step", 5)), cut("gpus=1:3", at=call("save", actor="a", after=True)))
    assert program.planned == [
        Planned("kill", (0, 3), "step", 5),
        Planned("cut", (1, 2), "save", 1, "a", after=True),
    ]


def test_all_has_happened(program: Program) -> None:
    plan = begun(program, cut([0, 1], at=call("step", 2)))
    program.told(0, 1)
    assert plan.happened == ["cut of rank 1 at call 2 of step()"]
    assert str(plan).splitlines()[1:] == [
        "  cut of rank 1 at call 2 of step(): has happened",
        "  cut of rank 0 at call 2 of step(): has not happened",
    ]
    program.told(0, 0)
    plan.wait(0)
    assert plan.end() == ""
    assert [type(each) for each in program.asked[1:]] == [EndOnRank, str], "nobody is waited for"


def test_what_has_not_happened_is_named_with_the_calls_that_there_were(program: Program) -> None:
    plan = begun(program, kill([1, 2], at=call("step", 5)))
    program.told(0, 2)
    program.seen = [{1: Seen([3], True, [])}, {1: Seen([4], False, [])}]
    assert plan.end() == "kill of rank 1 at call 5 of step() has not happened; such calls so far: 4"
    looks = [each for each in program.asked if isinstance(each, LookOnRank)]
    assert len(looks) == 4, "one at work, and three in a row that are not"
    assert plan.end() == "", "it is said once"


def test_a_failed_test_does_not_wait_for_ranks(program: Program) -> None:
    plan = begun(program, kill(1, at=call("step", 5)))
    program.seen = [{1: Seen([3], True, [])}]
    assert plan.end(failed=True)
    assert not any(isinstance(each, LookOnRank) for each in program.asked)


def test_a_block_has_an_error_or_a_note(program: Program) -> None:
    with pytest.raises(MeshError, match="kill of rank 1 at call 1 of step"), faults(Mesh(), kill(1, at=call("step"))):
        pass
    with pytest.raises(LookupError) as caught, faults(Mesh(), kill(1, at=call("step"))):
        raise LookupError
    assert "has not happened" in caught.value.__notes__[0]


def test_a_killed_process_is_waited_for(program: Program) -> None:
    plan = begun(program, kill(1, at=call("step")))
    program.told(0, 1)
    with pytest.raises(TimeoutError, match=r"not all faults have happened within 0 s\n"):
        plan.wait(0)
    program.facts = MeshFacts("m", "train", SHAPE, pids={1: 11}, ended={1: Fate("died")})
    plan.wait(0)
    program.facts = MeshFacts("m", "train", SHAPE, pids={1: 99})  # it was started again
    plan.wait(0)


@pytest.mark.parametrize("by", ["resume", "end", "seconds"])
def test_a_stopped_process_goes_on(by: str, program: Program, process: int) -> None:
    program.facts = MeshFacts("m", "train", SHAPE, pids={1: process})
    plan = begun(program, stop(1, at=call("step"), seconds=0.01 if by == "seconds" else None))
    if by == "seconds":  # it is continued only once it is stopped, and then at once
        program.told(0, 1)
        os.kill(process, signal.SIGSTOP)
        assert os.waitid(os.P_PID, process, os.WCONTINUED) is not None
    else:
        program.told(0, 1)
        with pytest.raises(TimeoutError):
            plan.wait(0)
        pause(process)
        plan.wait(5)
        if by == "end":
            assert plan.end() == ""
        else:
            plan.resume()
    wait_until(lambda: not is_stopped(process), 20, "it goes on")
    plan.wait(5)
    plan.end()


def test_a_process_that_ends_before_it_stops(program: Program, process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while nobody has asked for its status."""
    monkeypatch.setattr(plans, "_TO_STOP", math.inf)
    program.facts = MeshFacts("m", "train", SHAPE, pids={1: process})
    plan = begun(program, stop(1, at=call("step")))
    program.told(0, 1)
    os.kill(process, 9)
    plan.wait(20)
    assert plan.end() == ""


def test_refused(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = begun(program, kill(1, at=call("step")))
    with pytest.raises(UsageError, match="was already started"):
        plan.begin(Mesh())
    with pytest.raises(UsageError, match=r"consists of results of testing.kill, stop and cut, not of \["):
        FaultPlan([kill(1, at=call("step"))])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="requires a mesh of processes, as proc_mesh makes it, not 'train'"):
        FaultPlan().begin("train")  # type: ignore[arg-type]
    program.begun = [Answered("m", (1,), Armed(True), {})]
    with pytest.raises(UsageError, match="stop: a rank on another machine"):
        begun(program, stop(1, at=call("step")))
    begun(program, kill(1, at=call("step")), stop(0, at=call("step")))
    program.begun = [Unanswered("m", (1,), "gone", "has ended")]
    with pytest.raises(MeshError, match=r"ranks \[1\] did not get the plan of faults: has ended"):
        begun(program, kill(1, at=call("step")))
    program.facts = None
    with pytest.raises(UsageError, match="processes of this program: train has none"):
        begun(program, kill(1, at=call("step")))
    monkeypatch.setattr(plans, "running_root", lambda: None)
    assert plan.end().startswith("kill of rank 1"), "the program has ended before"
