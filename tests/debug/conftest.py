"""What several files of these tests begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshrt import ActorMesh, proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import person

WAIT = 20


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of answers and interrupts that take long: on a loaded machine any may, and what is said changes.

    A test of what is said sets these times itself. The debugger in a program that a test starts has its usual ones.
    """
    for name in ("prompt.repl.HINT", "prompt.repl.ANSWER", "prompt.attached.HINT", "broker.stopping._EXPLAIN"):
        monkeypatch.setattr(f"meshrt.debug.{name}_SECONDS", 60.0)


@pytest.fixture
def stopped() -> Iterator[ActorMesh[Debugee]]:
    """Four ranks at a breakpoint, in this very program; their stop has been announced."""
    mesh = proc_mesh(hosts=2, gpus=2).spawn("debugee", Debugee).get(WAIT)
    with person() as me:
        result = mesh.work.call()
        me.wait("debugee")
        me.announced("debugee", 4)  # or the notice is printed between what a test types
    yield mesh
    with person() as me:
        me("clear all")
        me("continue")
    result.get(WAIT)
