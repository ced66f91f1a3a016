"""Requests that set something in all ranks."""

from __future__ import annotations

import asyncio
from typing import cast

from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Peer
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, until

RANKS = [Rank("m1", rank, f"rank {rank}") for rank in range(2)]


def test_a_property_of_the_engines_is_set_in_all_ranks_and_in_late_ones() -> None:
    async def scene() -> None:
        program = FakeProgram(*RANKS[:1])
        ide = FakeIde(program)
        view = ThreadsView(cast(Peer, ide), Configuration.read({"meshView": "threads"}), 1, lambda _view: None)
        view.attach(request(1, "attach"), {})
        await until(lambda: ide.answer(1))
        view.receive(request(2, "setDebuggerProperty", skipSuspendOnBreakpointException=["KeyError"]))
        await until(lambda: ide.answer(2))
        assert (ide.answer(2) or {})["success"] and (RANKS[0].key, "setDebuggerProperty") in program.asked
        program.ranks.append(RANKS[1])
        view.born(RANKS[1])
        await until(lambda: (RANKS[1].key, "setDebuggerProperty") in program.asked)
        view.gone()
        await asyncio.gather(*ide.tasks)

    run(scene)
