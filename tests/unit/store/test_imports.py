"""What a host fetches from another machine's store: once for all who want it, and nothing stays of what fails."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import MeshError, StoreFull
from meshrt.store import imports
from meshrt.store.chain import StoreName
from meshrt.store.exports import PIECE
from meshrt.store.hostlinks import HostLinks
from meshrt.store.imports import Imports
from meshrt.store.lease import Loan
from meshrt.store.messages import Found, Imported, LetGo, Piece, Pull, Relay, Skip
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
        self.failed: list[int] = []
        self.imports = Imports(
            self.links,
            str(folder / "run"),
            own,
            self.registry,
            lambda: 1 << 40,
            failed=lambda segment, _why: self.failed.append(segment),
        )
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
    why = "the host that holds the data is lost (1.0 of 1.0 MiB were received)"
    assert host.refusals() == {FIRST: why, SECOND: why}
    host.close()
    with pytest.raises(MeshError, match="the host that holds the data is lost"):
        host.wants(FIRST)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Piece(1, b"a")], "1 bytes at 0 of"),
        ([FOUND, Piece(1, b"a" * PIECE), Piece(1, b"b" * 101)], f"101 bytes at {PIECE} of"),
        ([FOUND, {"t": "piece", "id": 1, "data": b"a"}], "expected one of found, full, imported, later, no"),
        ([{"t": "found", "id": 1, "kind": "", "site": "", "source": [1]}], "of length 2, got 1 - at `$.source`"),
        ([{"t": "no", "id": 1}], "missing required field `why`"),
        ([Imported(1, LOAN)], "Imported is not an answer to what was asked for"),
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
    with pytest.raises(StoreFull, match=r"where no file can be created either \(No such file or directory\)"):
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


# -- from other hosts than the owner

OTHER, NEAREST = StoreName(3, 78), StoreName(4, 79)


def relayed(start: int, number: int = 1) -> list[Relay]:
    """What another host is asked for."""
    return [Relay(number, 9, SIZE, start)]


@pytest.fixture
def other(host: Host, tmp_path: Path) -> Iterator[OtherStore]:
    """Another host, which the owner names: it is asked."""
    made = OtherStore(host.selector, tmp_path, *OTHER)
    host.wants(FIRST)
    host.owner.accept()
    host.owner.say(Found(1, "put", "a.py:1", OTHER))
    assert made.accept() == relayed(0)
    yield made
    made.close()


def test_it_comes_from_the_host_that_the_owner_names(host: Host, other: OtherStore) -> None:
    other.say(FOUND, Piece(1, b"a" * PIECE))
    found = host.imports.coming(9)
    assert found is not None and found[1].size == PIECE and found[0].site == "a.py:1"
    other.say(Piece(1, b"b" * 100))
    assert len(host.imported()) == 1
    assert other.hear() == [LetGo([9])], "it has sent it"
    assert host.owner.hear() == [], "which counts this host still"
    host.registry.let_go(9, FIRST)
    assert host.owner.hear() == [LetGo([9])] and other.hear() == []


def refuses(_host: Host, other: OtherStore) -> None:
    other.say(Refusal(1, "it is not here"))


def hangs_up(_host: Host, other: OtherStore) -> None:
    other.hang_up()


def says_nothing(host: Host, other: OtherStore) -> None:
    host.imports.tick()
    assert other.hear() == [], "it has time"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "_PATIENCE", -1.0)
        host.imports.tick()
    assert other.hear() == [LetGo([9])]
    host.answers.clear()


@pytest.mark.parametrize("fails", [refuses, hangs_up, says_nothing])
@pytest.mark.parametrize("pieces", [0, 1])
def test_a_host_that_does_not_deliver_is_skipped(
    host: Host, other: OtherStore, tmp_path: Path, fails: Callable[[Host, OtherStore], None], pieces: int
) -> None:
    if pieces:
        other.say(FOUND, Piece(1, b"a" * PIECE))
    fails(host, other)
    start = pieces * PIECE
    assert host.owner.hear() == [Skip(2, 9, SIZE, start, OTHER)]
    nearest = OtherStore(host.selector, tmp_path, *NEAREST)
    host.owner.say(Found(2, "put", "a.py:1", NEAREST))
    assert nearest.accept() == relayed(start)
    nearest.close()
    host.serve()
    assert host.owner.hear() == [Skip(3, 9, SIZE, start, NEAREST)]
    host.owner.say(Found(3, "put", "a.py:1"))
    if not pieces:
        host.owner.say(Piece(3, b"a" * PIECE))
    host.owner.say(Piece(3, b"b" * 100))
    (loan,) = host.imported()
    (chunk,) = host.registry.chunks()
    assert os.pread(chunk.descriptor, 2, PIECE - 1) == b"ab" and loan.chunk == chunk.id


def test_the_owner_is_lost_while_another_host_sends(host: Host, other: OtherStore) -> None:
    host.owner.hang_up()
    other.say(FOUND, Piece(1, b"a" * PIECE), Piece(1, b"b" * 100))
    assert len(host.imported()) == 1


def test_both_are_lost(host: Host, other: OtherStore) -> None:
    host.owner.close()
    host.serve()
    other.say(FOUND, Piece(1, b"a" * PIECE))
    other.hang_up()
    assert host.refusals() == {FIRST: "the host that holds the data is lost (1.0 of 1.0 MiB were received)"}
    assert host.failed == [9]


def test_the_owner_names_this_host(host: Host) -> None:
    host.wants(FIRST)
    host.owner.accept()
    host.owner.say(Found(1, "put", "", StoreName(HERE, os.getpid())))
    assert "this host itself is named" in host.refusals()[FIRST]
