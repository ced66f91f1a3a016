"""One look at ranks: what agents have read and what ranks have answered, joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.fate import Fate
from meshrt.hooks.measured import AgentFacts, Fetched, Measured, ProcessFacts, StoreFacts
from meshrt.top.operations import ActorWork, Look, Use, WorkOfRank
from meshrt.top.root import load
from tests.unit.debug.root_fakes import FakeRoot

WORK = WorkOfRank([ActorWork("a", "step", 3, 1, False)], {"cuda:0": 7}, 1.5)


class Root(FakeRoot):
    """Rank 0 answers, rank 1 was stopped by a signal, and the agent has read nothing of rank 2."""

    async def measure(
        self,
        targets: Mapping[str, Sequence[int]],
        seconds: float,
        references: str | None = None,
        *,
        work: bool = False,
        children: bool = False,
    ) -> Measured:
        first = ProcessFacts(rss=50, shmem=10, swap=0, peak=60, cpu=1.0, at=2.0, threads=3, kernel="S")
        store = StoreFacts(committed=0, limit=0, fetched=Fetched(0, 0), held=[(1000, 10, 20, 0)])
        agent = AgentFacts(pid=1, node="node", address="", store=store)
        return Measured({("m1", 0): first, ("m1", 1): ProcessFacts(kernel="T")}, {"node": agent}, [], [])

    def gather(
        self,
        targets: Mapping[str, Sequence[int]],
        operation: Any,
        seconds: float,
        report: Callable[[Gathered[Any, Any]], None],
        *,
        stack_suffices: bool = False,
    ) -> int:
        groups: list[Answered[Any, Any] | Unanswered] = [
            Answered("m1", (0,), None, {0: WORK}),
            Unanswered("m1", (1, 2), "silent", ""),
        ]
        asyncio.get_running_loop().call_soon(report, Gathered(groups, done=True))
        return 1


def test_a_look_has_a_row_for_each_rank_whatever_it_does() -> None:
    root = Root(("m1", "", {"n": 4}, ("a",)))
    load(root)
    root.kill(3, "was killed by SIGKILL")
    looked = Look.read_answer(root.ask(root.terminal(), "top.look"))
    assert [mesh.mesh_id for mesh in looked.meshes] == ["m1"] and looked.ranks[0].actors == ["a"]
    first, second, third, dead = looked.ranks
    assert (first.state, first.pid, first.store, first.work) == ("running", 1000, 30, WORK)
    assert first.use == Use(50, 10, 0, 1.0, 2.0, 3)
    # The kernel tells of the stop before any request times out.
    assert (second.state, second.work) == ("not-answering", None) and "SIGCONT" in second.note
    assert (third.state, third.use, third.work) == ("running", Use(), None)
    assert (dead.state, dead.since, dead.note) == ("dead", 200.0, "was killed by SIGKILL")
    chosen = Look.read_answer(root.ask(root.terminal(), "top.look", ranks="ranks(1:3)"))
    assert [rank.rank for rank in chosen.ranks] == [1, 2]


def test_a_rank_that_was_started_again_says_how_it_had_ended() -> None:
    root = Root(("m1", "", {"n": 4}, ("a",)))
    load(root)
    root.incarnations[0] = 2
    for told in root.rank_gone:
        told("m1", 0, Fate("died", signal=9))
    first = Look.read_answer(root.ask(root.terminal(), "top.look")).ranks[0]
    assert (first.incarnation, first.note) == (2, "restarted (2): it was killed by SIGKILL")
