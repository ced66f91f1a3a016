"""The set-up function of a process."""

from __future__ import annotations

import asyncio

import pytest

from meshrt.actor.setup import SetUp


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_it_runs_once_unless_it_fails_and_is_awaited(on_a_loop: bool) -> None:
    ran: list[str] = []

    async def function() -> None:
        await asyncio.sleep(0)
        ran.append("ran")
        if len(ran) == 1:
            raise OSError("not the first time")

    setup = SetUp()

    def run() -> None:
        if on_a_loop:
            asyncio.run(setup.run_async(function))
        else:
            setup.run(function)

    with pytest.raises(OSError, match="not the first time") as raised:
        run()
    assert "setup function" in raised.value.__notes__[0]
    run()
    run()
    assert ran == ["ran", "ran"]
