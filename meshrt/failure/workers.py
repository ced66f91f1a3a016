"""The workers of one launcher on this machine, and which of them failed first.

``torchrun`` compares whole seconds, and only of the workers of its own machine: of workers that fail within one second
it names the first that it sees. So each worker with an error reads the words of the others (their files are in folders
next to each other, named by the local rank), and writes a second that puts it in the right place.

Of two workers, the one with better evidence for a failure of its own failed first, unless it surely was later:
``"own"`` before ``"carried"`` (its error came from elsewhere and names its cause) before ``"inferred"`` (an error that
a worker gets when its peer has ended). With equal evidence, time decides where it can, by the machine's monotonic
clock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from meshrt.failure.causes import is_consequence
from meshrt.failure.record import ExceptionFacts, FailureRecord, Plain
from meshrt.transport.paths import closed_after

__all__ = ["EVIDENCE", "NOTED_WITHIN", "Word", "cause_of", "locked", "others_of", "own_rank", "second_of"]

#: Evidence for a failure of the worker's own, the best first.
EVIDENCE = ("own", "carried", "inferred")
#: An error, or the end of a process, is noted at most so much later, if all goes well, ns. Its connections are closed
#: before that: a failure that follows from it may be noted earlier.
NOTED_WITHIN = 1_000_000_000
_LARGEST = 64 << 20
_SECOND = 1_000_000_000
#: Seconds that a worker waits for the lock; and between two attempts.
_LOCK_MAX = 1.0
_LOCK_PAUSE = 0.002


class Word(Plain, frozen=True):
    """What a worker has told the launcher.

    Attributes:
        rank: Among all workers of the job; -1: not known.
        pid: Of the worker; 0: not known.
        evidence: One of `EVIDENCE`.
        low, high: When it failed: not before ``low`` and not after ``high``; monotonic ns.
        second: Time in the file, whole seconds since the epoch.
        headline: The error, in one line.
        after: Rank of the worker that had failed before it; -1: none is known.
    """

    rank: int = -1
    pid: int = 0
    evidence: str = "own"
    low: int = 0
    high: int = 0
    second: int = 0
    headline: str = ""
    after: int = -1


def others_of(path: Path) -> dict[Path, Word | None]:
    """Return the other workers of this machine by their files, with their words; {} without a launcher.

    Args:
        path: The file of this one: ``<local rank>/error.json``.
    """
    count, mine = os.environ.get("LOCAL_WORLD_SIZE", ""), path.parent.name
    if not count.isdecimal() or not mine.isdecimal():
        return {}
    first = own_rank() - int(mine) if own_rank() >= 0 else None
    found = {}
    for local in range(int(count)):
        if local != int(mine):
            other = path.parent.parent / str(local) / path.name
            found[other] = _word_in(other, -1 if first is None else first + local)
    return found


def own_rank() -> int:
    """Return the rank of this process among the workers of its launcher; -1: not known."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() else -1


def _word_in(path: Path, rank: int) -> Word | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None  # there is none, or another process is writing it
    facts = document.get("meshrt") if isinstance(document, dict) else None
    if not isinstance(facts, dict) or not isinstance(facts.get("worker"), dict):
        return _of_somebody_else(document, rank)
    word = Word.from_plain(facts["worker"])
    return word if word.evidence in EVIDENCE else None


def _of_somebody_else(document: object, rank: int) -> Word | None:
    """Return the word in a file of TorchElastic itself: it failed at some time of that second."""
    try:
        message = document["message"]  # type: ignore[index]  # of any type
        second = int(message["extraInfo"]["timestamp"])
        began = time.monotonic_ns() - (time.time_ns() - second * _SECOND)
        headline = str(message["message"]).partition("\n")[0]
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    facts = ExceptionFacts(headline.partition(":")[0], headline)
    evidence = "inferred" if is_consequence(FailureRecord(exception=facts)) else "own"
    return Word(rank, 0, evidence, began, began + _SECOND, second, headline)


def _precedes(one: Word, other: Word) -> bool:
    """Whether ``one`` failed first, as far as that is known."""
    ours, theirs = EVIDENCE.index(one.evidence), EVIDENCE.index(other.evidence)
    if ours < theirs:
        return one.low <= other.high
    if ours > theirs:
        return one.high < other.low
    # Both times have the same delay, unless only the second of one is known.
    return one.high < (other.high if one.pid and other.pid else other.low)


def cause_of(word: Word, others: Sequence[Word]) -> Word | None:
    """Return the worker that failed before all others and before ``word``, if there is one."""
    before = [other for other in others if _precedes(other, word)]
    return min(before, key=lambda other: (EVIDENCE.index(other.evidence), other.high), default=None)


def second_of(word: Word, others: Sequence[Word]) -> int:
    """Return the second to write in place of ``word.second``: the first failure must get the smallest."""
    later = [other.second - 1 for other in others if _precedes(word, other)]
    earlier = [other.second + 1 for other in others if _precedes(other, word)]
    return max([min([word.second, *later]), *earlier])


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock under which a worker reads the words of the others and writes its own. Raises OSError.

    If it does not get the lock within `_LOCK_MAX` seconds (a file system that does not lock folders, a worker that was
    stopped while it held the lock), it goes on without: two words in the wrong order are better than none.
    """
    with closed_after(os.open(path.parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
        deadline = time.monotonic() + _LOCK_MAX
        while time.monotonic() < deadline:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE)
            except OSError:
                break
        yield
