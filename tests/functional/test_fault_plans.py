"""Faults that a test plans (`meshrt.testing.faults`), on real processes."""

from __future__ import annotations

import os

import pytest

from meshrt import Actor, CallTimeout, LinkLost, ProcessDied, endpoint, proc_mesh, testing
from meshrt.errors import MeshError
from meshrt.pytest_plugin import MeshMaker
from tests.support.actors import Echo

pytestmark = pytest.mark.one_program

WAIT = 20


class Steps(Actor):
    def __init__(self) -> None:
        self.steps = 0

    @endpoint
    def step(self) -> int:
        self.steps += 1
        return self.steps

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class AsyncSteps(Steps):
    @endpoint
    async def wait(self) -> None:
        """It has an event loop."""


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Steps, AsyncSteps])
@pytest.mark.parametrize("after", [False, True])
def test_ranks_are_killed_at_their_call(cls: type[Steps], after: bool) -> None:
    mesh = proc_mesh(gpus=4)
    at = testing.call("step", 2, after=after)
    with testing.faults(mesh, testing.kill("gpus=1:3", at=at)) as plan:
        steps = mesh.spawn("steps", cls)
        assert steps.step.call().get(WAIT).values() == [1, 1, 1, 1]
        assert plan.happened == []
        with pytest.raises(ProcessDied, match="was killed by SIGKILL"):
            steps.slice(gpus=slice(1, 3)).step.call().get(WAIT)
        plan.wait(WAIT)
        assert steps.slice(gpus=0).step.call_one().get(WAIT) == 2
    assert len(plan.happened) == 2


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Steps, AsyncSteps])
def test_a_rank_is_stopped_and_goes_on(cls: type[Steps]) -> None:
    mesh = proc_mesh(gpus=2)
    stop = testing.stop(1, at=testing.call("step", 2))
    later = testing.stop(0, at=testing.call("step", 3), seconds=0.1)
    with testing.faults(mesh, stop, later) as plan:
        steps = mesh.spawn("steps", cls)
        steps.step.call().get(WAIT)
        second = steps.step.call()
        with pytest.raises(CallTimeout, match="rank 1"):
            second.get(0.3)
        plan.resume()
        assert second.get(WAIT).values() == [2, 2]
        assert steps.step.call().get(WAIT).values() == [3, 3]
    with testing.faults(mesh, testing.stop(1, at=testing.call("pid"))) as plan:
        pid = steps.pid.call()
        plan.wait(WAIT)
        assert not pid.done()
    assert len(pid.get(WAIT)) == 2, "it goes on at the end of the block"


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Steps, AsyncSteps])
def test_a_connection_is_cut_and_the_rank_goes_on(cls: type[Steps]) -> None:
    mesh = proc_mesh(gpus=2)
    caller = mesh.slice(gpus=0).spawn("caller", Echo)
    with testing.faults(mesh, testing.cut(1, at=testing.call("step", actor="steps", after=True))):
        steps = mesh.spawn("steps", cls)
        other = mesh.spawn("other", cls)
        assert other.step.call().get(WAIT).values() == [1, 1], "it is another actor"
        with pytest.raises(LinkLost, match="rank 1"):
            steps.step.call().get(WAIT)
        assert caller.apply.call_one(_step, steps.slice(gpus=1)).get(WAIT) == 2, "another caller reaches it"


def _step(steps: object) -> object:
    return steps.step.call_one().get(WAIT)  # type: ignore[attr-defined]


def test_a_fault_in_init_and_one_that_has_not_happened() -> None:
    mesh = proc_mesh(gpus=2)
    planned = testing.kill(1, at=testing.call("__init__")), testing.cut(0, at=testing.call("step", 2))
    missing = r"cut of rank 0 at call 2 of step\(\) has not happened; such calls so far: 1"
    with pytest.raises(MeshError, match=missing), testing.faults(mesh, *planned):  # noqa: PT012 - its end raises
        steps = mesh.spawn("steps", Steps)
        with pytest.raises(ProcessDied):
            steps.get(WAIT)
        steps.slice(gpus=0).step.call_one().get(WAIT)


def test_the_ranks_of_a_slice_and_calls_that_were_sent_only() -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    steps = mesh.spawn("steps", Steps)
    with testing.faults(mesh.slice(hosts=1), testing.kill(1, at=testing.call("step", 20))) as plan:
        for _ in range(20):
            steps.step.broadcast()
    assert plan.happened == ["kill of rank 3 at call 20 of step()"], "the end waits for ranks that are at work"
    plan.wait(WAIT)


def test_a_fault_of_the_fixture(meshrt_mesh: MeshMaker) -> None:
    steps = meshrt_mesh(gpus=2, faults=testing.cut(1, at=testing.call("step"))).spawn("steps", Steps)
    with pytest.raises(LinkLost):
        steps.step.call().get(WAIT)


def test_a_plan_of_the_fixture(meshrt_mesh: MeshMaker) -> None:
    plan = testing.FaultPlan(testing.cut(1, at=testing.call("step")))
    steps = meshrt_mesh(gpus=2, faults=plan).spawn("steps", Steps)
    with pytest.raises(LinkLost):
        steps.step.call().get(WAIT)
    plan.wait(WAIT)
