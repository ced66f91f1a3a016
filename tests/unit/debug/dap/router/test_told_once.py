"""What many ranks have in common is told once."""

from __future__ import annotations

import asyncio

from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.told_once import Ends
from tests.unit.debug.dap.router.fakes import run, until

RANKS = [Rank("m1", rank, f"gpus={rank} (rank {rank})") for rank in range(4)]


def test_ends_of_one_cause_are_one_line() -> None:
    async def scene() -> None:
        told: list[tuple[str, str]] = []
        names = Names()
        ends = Ends(lambda text, category: told.append((text, category)), names)
        for rank in RANKS:
            names.meet(rank)
            ends.add(rank, "was killed" if rank.rank else "the mesh was stopped")
        assert not told
        await until(lambda: len(told) == 2)
        assert told == [
            ("meshrt: gpus=0 (rank 0): the mesh was stopped", "important"),
            ("meshrt: ranks 1-3: was killed", "important"),
        ]
        # Nothing is told of a session that is over.
        ends.add(RANKS[0], "was killed")
        ends.close()
        ends.add(RANKS[1], "was killed")
        await asyncio.sleep(0)
        assert len(told) == 2

    run(scene)
