"""Which of several workers failed first, and the seconds that say so."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.failure import workers
from meshrt.failure.workers import Word, cause_of, locked, others_of, second_of

S = 1_000_000_000


def word(
    at: float, evidence: str = "own", *, rank: int = 0, seen_late: float = 0.0, second: int | None = None, pid: int = 1
) -> Word:
    second = int(at) if second is None else second
    return Word(rank, pid, evidence, int((at - seen_late) * S), int(at * S), second)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (word(10.2), word(10.3)),
        (word(10.2), word(10.3, "inferred")),
        (word(10.3, seen_late=0.2), word(10.2, "inferred")),  # a process ends before that is seen
        (word(10.2, "inferred"), word(10.3)),  # nobody is a victim of what comes after it
        (word(10.3, "carried", seen_late=10.3), word(10.2, "inferred")),  # it names what happened before
        (word(10.2), word(10.3, "carried", seen_late=10.3)),
        (word(10.2), word(10.3, seen_late=1)),  # both are noted late
        (word(10.0, pid=0), word(11.2, seen_late=1)),
    ],
)
def test_who_was_first(first: Word, then: Word) -> None:
    assert cause_of(then, [first]) is first and cause_of(first, [then]) is None
    # Whoever says it first, the seconds are in order.
    assert second_of(then, [first]) > first.second
    assert second_of(first, [then]) < then.second


def test_nobody_can_tell() -> None:
    """One of them is of somebody else, who says no more than the second."""
    one, other = word(11, seen_late=1, pid=0), word(10.2)
    assert cause_of(one, [other]) is None and cause_of(other, [one]) is None
    assert second_of(one, [other]) == 11 and second_of(other, [one]) == 10


def test_the_cause_is_the_one_with_the_best_evidence() -> None:
    victims = [word(10.1 + number / 100, "inferred", rank=number) for number in range(3)]
    cause = word(10.15, rank=7, seen_late=0.1)
    assert cause_of(victims[2], [*victims[:2], cause]) is cause


@given(st.permutations(range(4)))
def test_in_whichever_order_they_say_it_the_cause_has_the_smallest_second(order: list[int]) -> None:
    words = [word(10.1 + number / 10, "inferred" if number else "own", rank=number) for number in range(4)]
    said: list[Word] = []
    for number in order:
        mine = words[number]
        expected = mine.evidence != "own" and cause_of(mine, said) is None
        said.append(Word(number, 1, mine.evidence, mine.low, mine.high, second_of(mine, said) + expected))
    first = min(said, key=lambda each: (each.second, -each.rank))  # the cause would lose a tie
    assert first.rank == 0


def test_others_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for local in range(6):
        (tmp_path / str(local)).mkdir()
    files = [tmp_path / str(local) / "error.json" for local in range(6)]
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "6")
    told = Word(11, 4711, "inferred", 1, 2, 3, "EOFError")
    now = time.time_ns() // S
    torch: Any = {"message": {"message": "OSError: x\ny", "extraInfo": {"py_callstack": "", "timestamp": str(now)}}}
    files[3].write_text(json.dumps({"message": {}, "meshrt": {"worker": told.to_plain()}}))
    files[2].write_text(json.dumps(torch))
    files[0].write_text('{"message": {"mess')
    torch["message"]["message"] = "ConnectionResetError: [Errno 104] Connection reset by peer"
    files[4].write_text(json.dumps(torch))
    found = others_of(files[1])
    assert list(found) == [files[0], *files[2:]] and found[files[3]] == told
    assert (found[files[0]], found[files[5]]) == (None, None)
    theirs, victim = found[files[2]], found[files[4]]
    assert theirs is not None and (theirs.rank, theirs.second, theirs.headline) == (10, now, "OSError: x")
    assert theirs.evidence == "own" and theirs.high - theirs.low == S and theirs.low <= time.monotonic_ns()
    assert victim is not None and victim.evidence == "inferred"


def test_the_rank_of_others_is_not_known_where_the_own_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    (tmp_path / "1").mkdir()
    torch = {"message": {"message": "OSError: x", "extraInfo": {"timestamp": "7"}}}
    (tmp_path / "1" / "error.json").write_text(json.dumps(torch))
    (other,) = others_of(tmp_path / "0" / "error.json").values()
    assert other is not None and other.rank == -1


def test_one_says_something_at_a_time(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        with locked(tmp_path / "0" / "error.json"), pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("error", [OSError("not here"), BlockingIOError()])
def test_without_a_lock_it_is_said_all_the_same(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_descriptor: int, _how: int) -> None:
        raise error

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(workers, "_LOCK_MAX", 0.02)
    said = []
    with locked(tmp_path / "0" / "error.json"):
        said.append(1)
    assert said


@pytest.mark.parametrize(("count", "folder"), [("", "1"), ("x", "1"), ("3", "one"), ("1", "0")])
def test_there_are_no_others(count: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", count)
    assert others_of(tmp_path / folder / "error.json") == {}


@pytest.mark.parametrize(
    "document",
    [
        [1],
        {"meshrt": 3},
        {"meshrt": {"worker": []}},
        {"meshrt": {"worker": {"evidence": "none"}}},
        {"message": {"message": "m", "extraInfo": {"timestamp": "soon"}}},
        {"message": {"message": "m", "extraInfo": {"timestamp": 1e400}}},
    ],
)
def test_what_is_no_word_is_none(document: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "error.json").write_text(json.dumps(document))
    assert list(others_of(tmp_path / "0" / "error.json").values()) == [None]


def test_evidence_and_time_order_any_two() -> None:
    """No two are before each other."""
    words = [
        word(at, evidence, seen_late=late)
        for at in (1, 2)
        for evidence in ("own", "carried", "inferred")
        for late in (0, 1.5)
    ]
    for one, other in itertools.combinations(words, 2):
        assert not (cause_of(one, [other]) and cause_of(other, [one]))
