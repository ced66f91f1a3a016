"""What a process writes: memory that is used again, given back in slices, never written when its store has gone."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from meshrt.errors import ReferenceLost, UsageError
from meshrt.store.arenas import Arenas
from meshrt.store.messages import FromProcess, GiveBack, Grant, Publish, Share, ToProcess, Withdraw
from meshrt.store.registrars import Registrars
from tests.unit.store.registrars import FakeRegistrar, FakeRegistrars

AGENT, OTHER = 10, 20
MIB, PAGE = 1 << 20, mmap.PAGESIZE
A = TypeVar("A", bound=ToProcess)


class Made:
    """Arenas, what they told, and how often they asked to be looked after."""

    def __init__(self, folder: Path) -> None:
        self.registrars = FakeRegistrars(AGENT, OTHER)
        self.watched = 0
        self.arenas = Arenas(cast(Registrars, self.registrars), str(folder), self._watch)

    def _watch(self) -> None:
        self.watched += 1

    def write(self, *pieces: bytes, disk: bool = False) -> Any:
        return self.arenas.write([memoryview(piece) for piece in pieces], "put", "a.py:1", [7], disk=disk)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    found = Made(tmp_path)
    yield found
    found.arenas.close()


def test_pieces_stand_where_arrays_like_it_and_receivers_hold_them(made: Made) -> None:
    loan, starts = made.write(b"abc", b"defg")
    chunk = made.arenas.chunk(loan.chunk)
    assert starts == [0, 64] and chunk is not None
    mapping = chunk.mapping
    assert bytes(mapping.window(loan.start, 3, None)) == b"abc"
    assert bytes(mapping.window(loan.start + 64, 4, None)) == b"defg"
    agent = made.registrars.by_agent[AGENT]
    (told,) = agent.told
    assert [type(asked) for asked in agent.asked] == [Publish, Grant]
    assert told == Share(loan.segment, loan.chunk, loan.start, PAGE, "put", "a.py:1", False, [7])
    assert made.watched == 1 and made.arenas.chunk(99) is None


def test_what_was_freed_is_written_again(made: Made) -> None:
    loan, _ = made.write(b"a")
    second, _ = made.write(b"b")
    assert second.start != loan.start
    made.registrars.by_agent[AGENT].freed.append(loan.segment)
    assert made.write(b"c")[0].start == loan.start


def test_what_cannot_be_shared_is_withdrawn_and_free(made: Made) -> None:
    agent = made.registrars.by_agent[AGENT]
    agent.refuses = ReferenceLost("no")
    with pytest.raises(ReferenceLost):
        made.write(b"a")
    assert [type(message) for message in agent.told_later] == [Withdraw] and made.arenas.statistics()["taken"] == 0


def test_memory_is_given_back_in_slices_and_not_while_it_is_needed(made: Made) -> None:
    loan, _ = made.write(bytes(20 * MIB))
    agent = made.registrars.by_agent[AGENT]
    agent.freed.append(loan.segment)
    assert made.arenas.tend() == (False, True), "it was just used"
    assert made.arenas.tend() == (True, True) and agent.told_later == [GiveBack(8 * MIB)]
    made.write(b"a")
    assert made.arenas.tend() == (False, True), "somebody has asked for some in the middle of it"
    assert made.arenas.tend() == (True, True)
    while made.arenas.tend()[0]:
        pass
    assert max(message.size for message in agent.told_later if isinstance(message, GiveBack)) == 8 * MIB
    assert made.arenas.statistics()["committed"] == made.arenas.statistics()["taken"] == 4096


def test_who_must_not_wait_does_not(made: Made) -> None:
    """Another thread is inside of the arenas; and a finalizer on that very thread is told, and does not hang."""
    seen: list[Any] = []

    class Late(FakeRegistrar):
        def ask(self, question: Callable[[int], FromProcess], expected: type[A], send: object = ()) -> A:
            thread = threading.Thread(target=lambda: seen.append(made.arenas.tend()))
            thread.start()
            thread.join()
            with pytest.raises(UsageError, match="during another use"):
                made.arenas.statistics()
            return super().ask(question, expected)

    made.registrars.by_agent[AGENT] = Late(AGENT)
    made.write(b"a")
    assert seen == [(False, True)] * 2


def test_nothing_is_written_again_of_what_a_lost_store_knew(made: Made) -> None:
    loan, _ = made.write(b"a")
    seen = made.arenas.chunk(loan.chunk)
    made.registrars.by_agent[AGENT].lost = True
    made.registrars.first = OTHER
    second, _ = made.write(b"b")
    assert second.chunk != loan.chunk and second.agent_pid == OTHER and made.arenas.chunk(loan.chunk) is None
    assert seen is not None and bytes(seen.mapping.window(loan.start, 1, None)) == b"a", "who sees it sees it"
    assert list(made.registrars.by_agent) == [OTHER]


def test_a_file_counts_for_nothing(made: Made, tmp_path: Path) -> None:
    made.write(bytes(MIB), disk=True)
    agent = made.registrars.by_agent[AGENT]
    (told,) = agent.told
    assert [type(asked) for asked in agent.asked] == [Publish] and isinstance(told, Share) and told.disk
    assert list(tmp_path.iterdir()) == [], "it has no name"
