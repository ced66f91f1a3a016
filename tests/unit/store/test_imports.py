"""What a host fetches from another machine's store: once for all who want it, and nothing stays of what fails."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import MeshError, StoreFull
from meshrt.store.hostlinks import HostLinks
from meshrt.store.imports import Imports
from meshrt.store.lease import Loan
from meshrt.store.messages import Found, Imported, LetGo, Piece, Pull
from meshrt.store.peers import PIECE, Exports
from meshrt.store.registry import Chunk, Registry
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import Later, Refusal
from tests.unit.store.other_store import SECRET, OtherStore

OWNER, HERE, THERE = 77, 1, 2
FIRST, SECOND = 11, 12
SIZE = PIECE + 100
LOAN = Loan(THERE, OWNER, 5, 9, 0, SIZE)


class Host:
    """A store that imports, and the one that it imports from, which this test is."""

    def __init__(self, folder: Path) -> None:
        self.selector = selectors.DefaultSelector()
        self.dropped: list[int] = []
        self.registry = Registry(4 * SIZE, lambda _owner, _segment: None, self._drop)
        own = Identity(HERE, os.getpid(), os.getpid())
        self.links = HostLinks(self.selector, str(folder), SECRET, own)
        self.imports = Imports(self.links, str(folder / "run"), own, self.registry, lambda: 1 << 40)
        self.answers: list[Imported | Later | Refusal] = []
        self.owner = OtherStore(self.selector, folder, THERE, OWNER)

    def _drop(self, chunk: Chunk) -> None:
        os.close(chunk.descriptor)
        self.dropped.append(chunk.id)
        self.imports.dropped(chunk.id)

    def wants(self, pid: int, loan: Loan = LOAN) -> None:
        """A process asks for a segment, with its pid as the number of the question."""
        self.imports.begin(pid, loan, self.answers.append, [pid])

    def imported(self) -> list[Loan]:
        """Where it is, for each process that was told; nothing else was said."""
        assert all(isinstance(answer, Imported) for answer in self.answers)
        return [answer.loan for answer in self.answers if isinstance(answer, Imported)]

    def refusals(self) -> dict[int, str]:
        """Why it was refused, by pid; nothing else was said."""
        assert all(isinstance(answer, Refusal) for answer in self.answers)
        return {answer.id: answer.why for answer in self.answers if isinstance(answer, Refusal)}

    def serve(self) -> None:
        """Do what there is to do."""
        while ready := self.selector.select(0):
            for key, events in ready:
                key.data(events)

    def close(self) -> None:
        self.links.close()
        self.owner.close()
        self.selector.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    before = sorted(os.listdir("/proc/self/fd"))
    made = Host(tmp_path)
    yield made
    made.close()
    for chunk in made.registry.chunks():
        os.close(chunk.descriptor)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert made.registry.chunks() or made.registry.committed == 0


FOUND = Found(1, "put", "a.py:1")


def test_all_who_want_it_wait_for_one_fetch(host: Host) -> None:
    host.wants(FIRST)
    asked = host.owner.accept()
    assert host.owner.client == Identity(HERE, os.getpid(), os.getpid())
    host.wants(SECOND)
    assert host.owner.hear() == []
    assert asked == [Pull(1, 9, SIZE)]
    host.owner.say(FOUND, Piece(1, b"a" * PIECE))
    assert host.answers == [] and host.registry.committed == SIZE
    host.imports.tick()
    assert host.answers == [Later(FIRST), Later(SECOND)]
    host.answers.clear()
    host.owner.say(Piece(1, b"b" * 100))
    assert [answer.id for answer in host.answers] == [FIRST, SECOND]
    one, other = host.imported()
    assert one == other and one.machine == HERE and one.segment == 9
    (chunk,) = host.registry.chunks()
    assert chunk.id == one.chunk and chunk.size == SIZE
    assert os.pread(chunk.descriptor, 101, PIECE - 1) == b"a" + b"b" * 100
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(chunk.descriptor, b"x", 0)
    host.wants(SECOND)
    (segment,) = host.registry.segments()
    assert segment.holders == {FIRST: 1, SECOND: 2} and segment.site == "a.py:1" and host.imports.count == 1
    host.registry.ended(SECOND)
    assert not host.dropped
    host.registry.let_go(9, FIRST)
    assert host.dropped == [one.chunk] and host.registry.committed == 0
    assert host.owner.hear() == [LetGo([9])]


def test_the_owners_host_ends_in_the_middle(host: Host) -> None:
    host.wants(FIRST)
    host.owner.accept()
    host.wants(SECOND)
    host.owner.say(FOUND, Piece(1, b"a" * PIECE))
    host.owner.hang_up()
    why = "the host that has it is lost (0.2 of 0.3 MiB had come)"
    assert host.refusals() == {FIRST: why, SECOND: why}
    host.close()
    with pytest.raises(MeshError, match="the host that has it is lost"):
        host.wants(FIRST)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Piece(1, b"a")], "1 bytes at 0 of"),
        ([FOUND, Piece(1, b"a" * (SIZE + 1))], "bytes at 0 of"),
        ([FOUND, {"t": "piece", "id": 1, "data": 7}], "Expected `bytes`, got `int`"),
        ([FOUND, {"t": "piece", "id": [1], "data": b"a"}], "Expected `int`, got `array`"),
        ([{"t": "nothing", "id": 1}], "expected one of found, full, imported, later, no, piece"),
        ([{"t": "no", "id": 1}], "missing required field `why`"),
        ([Imported(1, LOAN)], "Imported is no answer to what was asked for"),
    ],
)
def test_nonsense_of_a_store(host: Host, messages: list[Found | Piece | Mapping[str, Any]], said: str) -> None:
    host.wants(FIRST)
    host.owner.accept()
    host.owner.say(*messages)
    assert "has sent an invalid message" in host.refusals()[FIRST] and said in host.refusals()[FIRST]


def test_it_is_gone_or_there_is_no_room(host: Host) -> None:
    host.wants(FIRST)
    host.owner.accept()
    host.owner.say(Refusal(1, "it is gone"))
    assert host.refusals() == {FIRST: "it is gone"}
    with pytest.raises(StoreFull):
        host.wants(FIRST, LOAN._replace(size=5 * SIZE))
    assert host.registry.committed == 0


def test_what_has_no_room_in_memory_goes_to_a_file(host: Host, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    host.registry.limit = SIZE - 1
    host.wants(FIRST)
    host.owner.accept()
    host.owner.say(FOUND, Piece(1, b"a" * PIECE), Piece(1, b"b" * 100))
    (loan,) = host.imported()
    (chunk,) = host.registry.chunks()
    assert str(tmp_path) in os.readlink(f"/proc/self/fd/{chunk.descriptor}")
    assert os.pread(chunk.descriptor, 9, PIECE) == b"b" * 9
    assert host.registry.segments()[0].disk and host.registry.committed == 0 and os.listdir(tmp_path / "run") == []
    host.registry.let_go(9, FIRST)
    assert host.dropped == [loan.chunk] and host.registry.committed == 0


def test_pieces_come_in_order_and_stop_when_they_are_not_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"-" * 10 + b"a" * PIECE + b"b" * 5)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    exports = Exports()
    exports.begin(1, 9, descriptor, 10, PIECE + 5)
    exports.begin(2, 8, descriptor, 0, 10)
    exports.begin(3, 7, descriptor, 0, 10)
    exports.cancel([8])
    found = []
    while (message := exports.next()) is not None:
        found.append((message.id, len(message.data), message.data[:1]))
    assert found == [(1, PIECE, b"a"), (1, 5, b"b"), (3, 10, b"-")]
    assert not exports
    exports.begin(1, 9, descriptor, PIECE, 100)
    assert exports.next() is not None
    with pytest.raises(OSError, match="ends before"):
        exports.next()
    os.close(descriptor)
