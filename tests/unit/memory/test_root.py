"""What the root makes of what is known of ranks, without any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from meshrt.hooks.facts import Gathered
from meshrt.hooks.fate import Fate
from meshrt.hooks.measured import AgentFacts, Measured, ProcessFacts
from meshrt.hooks.services import RootServices
from meshrt.hooks.snapshot import MeshFacts
from meshrt.memory.document import document_of
from meshrt.memory.look import Look
from meshrt.memory.operations import Heap, LookAtMemory
from meshrt.memory.root import Looking
from meshrt.memory.table import render
from meshrt.program.chosen import Chosen
from meshrt.program.states import State
from meshrt.selection import Shape
from tests.unit.memory.documents import MIB, lines


class Services:
    """Three ranks of one host; rank 1 is being started again, and rank 2 has ended."""

    run_id = "r"

    def meshes(self) -> Sequence[MeshFacts]:
        hosts = dict.fromkeys(range(3), "node0")
        shape, ended = Shape.from_extent({"n": 3}), {2: Fate("died", exit_code=3)}
        return [
            MeshFacts("m", "mesh1", shape, hosts, {0: 100}, (0, 1), {"a": dict.fromkeys(range(3), shape)}, ended=ended)
        ]

    async def measure(self, *_asked: Any) -> Measured:
        agent = AgentFacts(pid=7, node="node0", address="", pss=MIB)
        return Measured({("m", 0): ProcessFacts(rss=10 * MIB, pss=5 * MIB)}, {"node0": agent})

    def gather(self, *asked: Any, stack_suffices: bool) -> int:
        report: Callable[[Gathered[None, Heap]], None] = asked[-1]
        asyncio.get_running_loop().call_soon(report, Gathered([], True))
        return 1

    def leave_gather(self, number: int) -> None: ...


def test_a_rank_that_is_being_started_again_is_no_running_one() -> None:
    chosen = Chosen({"m": [0, 1, 2]}, lambda _mesh_id, rank: State("dead" if rank == 2 else "running"))
    answer = asyncio.run(Looking(cast(RootServices, Services()), LookAtMemory(), chosen).collect())
    text = render(document_of(answer), Look(sort="rank"))
    assert lines(text, "0 n", "1 n", "2 n") == [
        "0 n=0 a node0 100 10.0 MiB 5.0 MiB ? ? running",
        "1 n=1 a node0 ? ? ? ? starting",
        "2 n=2 a node0 ? ? ? ? dead",
    ]
