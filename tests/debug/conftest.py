"""What several files of these tests begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshrt import ActorMesh, proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import person

WAIT = 20


@pytest.fixture
def stopped() -> Iterator[ActorMesh[Debugee]]:
    """Four ranks at a breakpoint, in this very program."""
    mesh = proc_mesh(hosts=2, gpus=2).spawn("debugee", Debugee).get(WAIT)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
    yield mesh
    with person() as me:
        me("clear all")
        me("continue")
    result.get(WAIT)
