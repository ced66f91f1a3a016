"""Memory is short where a message is received or sent: that message fails, and the link and the rank go on."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshrt import Actor, ActorError, ResultNotSerializable, endpoint, proc_mesh
from tests.faults.watch import LONG, Program
from tests.support.limits import limit

MIB = 1 << 20


class Shelf(Actor):
    """Keeps an array, and has a limit of its own."""

    @endpoint
    def limit(self, room: int | None) -> None:
        limit(room)

    @endpoint
    def length(self, data: bytes) -> int:
        return len(data)

    @endpoint
    def made(self, size: int) -> bytes:
        return b"x" * size

    @endpoint
    def keep(self, size: int) -> None:
        self.array = np.ones(size, np.uint8)

    @endpoint
    def kept(self) -> Any:
        return self.array

    @endpoint
    def change(self, value: int) -> None:
        self.array[:] = value


class AsyncShelf(Shelf):
    """On an event loop."""

    @endpoint
    async def rest(self) -> None:
        await asyncio.sleep(0)


#: Received into the heap, and in chunks into a mapping.
SIZES = [6 * MIB, 70 * MIB]


@pytest.fixture(params=[Shelf, AsyncShelf])
def shelf(request: pytest.FixtureRequest) -> Any:
    return proc_mesh(n=1).spawn("shelf", request.param).get(LONG)


def says_why(text: str, size: int) -> bool:
    """Whether an error names the size of the message, and what became of it. The pickle is a bit longer than the data.

    Of the smaller size there may be memory for the message, and then none for what it holds.
    """
    found = re.search(r"a message of (\d+) bytes (was not received: \S|holds)", text)
    return found is not None and size <= int(found[1]) < size + 1000


@pytest.mark.slow
def test_an_argument_that_a_rank_has_no_memory_for(shelf: Any) -> None:
    for size in SIZES:
        shelf.limit.call_one(4 * MIB).get(LONG)  # anew: a thread that has ended meanwhile has given back its stack
        before, lost, behind = (shelf.length.call_one(data) for data in (b"1", bytes(size), b"22"))
        assert (before.get(LONG), behind.get(LONG)) == (1, 2)
        error = lost.exception(LONG)
        assert isinstance(error, ActorError) and isinstance(error, MemoryError)
        assert says_why(error.remote.message, size)
    shelf.limit.call_one(None).get(LONG)
    assert [shelf.length.call_one(bytes(size)).get(LONG) for size in SIZES] == SIZES


CALLER = """
    from tests.faults.test_memory_short import SIZES, Shelf
    from tests.support.limits import limited
    shelf = proc_mesh(n=1).spawn("shelf", Shelf).get(20)
    errors = []
    for size in SIZES:
        lost, behind = shelf.made.call_one(size), shelf.made.call_one(2)
        with limited(4 << 20):
            error = lost.exception(20)
            assert behind.get(20) == b"xx"
        errors.append([type(error).__name__, str(error)])
    tell(errors=errors, after=[len(shelf.made.call_one(size).get(20)) for size in SIZES])
"""


@pytest.mark.slow
@pytest.mark.row("O7")
def test_a_result_that_the_caller_has_no_memory_for(tmp_path: Path) -> None:
    """In a process of its own: what this one has freed would do for it."""
    with Program(CALLER, tmp_path) as program:
        assert program.told("after") == SIZES
        for (kind, text), size in zip(program.told("errors"), SIZES, strict=True):
            assert kind == ResultNotSerializable.__name__ and says_why(text, size)
        assert program.ends() == 0


@pytest.mark.slow
def test_a_result_that_cannot_be_copied_is_sent_before_user_code_goes_on(shelf: Any) -> None:
    """The rank has no memory for a copy of it, nor for one in shared memory."""
    shelf.keep.call_one(64 * MIB).get(LONG)
    shelf.limit.call_one(8 * MIB).get(LONG)
    first, changed, second = shelf.kept.call_one(), shelf.change.call_one(2), shelf.kept.call_one()
    assert changed.get(LONG) is None
    assert [int(future.get(LONG).sum()) for future in (first, second)] == [64 * MIB, 128 * MIB]
    shelf.limit.call_one(None).get(LONG)
