"""What many ranks have in common is told once."""

from __future__ import annotations

import asyncio
from typing import cast

from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.told_once import Ends
from meshrt.debug.dap.router.view import Peer
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, run, until

RANKS = [Rank("m1", rank, f"gpus={rank} (rank {rank})", 0, "") for rank in range(4)]


def test_ends_of_one_cause_are_one_line() -> None:
    async def scene() -> None:
        ide, names = FakeIde(FakeProgram()), Names()
        ends = Ends(cast(Peer, ide), names)
        for rank in RANKS:
            names.meet(rank)
            ends.add(rank, "was killed" if rank.rank else "the mesh was stopped")
        assert not ide.written
        await until(lambda: len(ide.written) == 2)
        assert [each["output"] for each in ide.events("output")] == [
            "meshrt: gpus=0 (rank 0): the mesh was stopped\n",
            "meshrt: ranks 1-3: was killed\n",
        ]
        # Nothing is told of a session that is over.
        ends.add(RANKS[0], "was killed")
        ends.close()
        ends.add(RANKS[1], "was killed")
        await asyncio.sleep(0)
        assert len(ide.written) == 2

    run(scene)
