"""What caused what, and which failure is the root cause. Pure.

A failure is a victim if there is evidence that another one came before it, the strongest first:

1. *carried*: its exception is, or came from, an error of meshrt that is about the other one;
2. *asked*: it was raised by an owner that was asked about the other one, or by an ``__init__`` that was run again
   because of it;
3. *own*: the process ended just after its own code had raised;
4. *inferred*: it is an error that a rank gets when its peer has ended (a closed connection, a time-out), and the other
   one is not.

The other failures are roots. Roots that are alike count as one. Several roots are ordered by time, if their times do
not overlap: the first one is the root, and the report says that nothing links the others to it. If their times overlap,
the order is not known: AMBIGUOUS, with all candidates.

Times: the end of a process, and an exception that passed clean-up code before it was recorded, have happened within a
span (`FailureRecord.low`, `high`). Source of the idea: cause before time. TorchElastic's reports take the first of
equal seconds, which names victims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshrt.failure.groups import alike
from meshrt.failure.record import FailureRecord, Reference
from meshrt.hooks.facts import UNRAISABLE

__all__ = ["STOPPED", "Cause", "Verdict", "is_consequence", "is_meant", "judge"]

#: The error about a rank that was stopped: that rank has not failed, and leaves no record.
STOPPED = "meshrt.errors.MeshStopped"
#: Exceptions that a rank gets because another one has ended.
_CONSEQUENCES = frozenset(
    {"ConnectionError", "EOFError", "TimeoutError", "BrokenBarrierError", "IncompleteReadError", "DistBackendError",
     "DistNetworkError", "BrokenProcessPool", "BrokenExecutor", "SSLEOFError", "MeshStopped"}
)  # fmt: skip
#: ... and texts of other exceptions that mean the same.
_CONSEQUENCE_TEXTS = (
    "connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "socket closed",
    "connection was closed", "connection lost", "remote process exited", "nccl error", "watchdog caught collective",
)  # fmt: skip
_SIGKILL, _SIGPIPE = 9, 13
#: A consequence comes at most so much later, ns; a time-out may come later than that.
_WITHIN = 30_000_000_000
_TIME_OUT_WITHIN = 2 * 3600 * 1_000_000_000
#: The end of a process comes at most so long after the exception that ended it, ns.
_JUST_AFTER = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a failure is a victim of another.

    Attributes:
        evidence: ``"carried"``, ``"asked"``, ``"own"``, ``"inferred"``, or ``"later"``: nothing links it to the root.
        why: In words.
        record: The other failure; None if no record of it has come.
        about: The rank or failure that the evidence names, if no record of it has come.
    """

    evidence: str
    why: str
    record: FailureRecord | None
    about: Reference | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cause of an incident, as far as it is known.

    Attributes:
        roots: The root cause, with the failures that are alike; or all candidates, if it is ambiguous.
        ambiguous: Whether there are several candidates that cannot be told apart.
        certainty: How sure that is, in words.
        causes: The causes of the victims, by position in ``records``.
        records: All failures, in the order in which they happened.
        unknown: Ranks or failures that evidence names and that have no record.
        silent: Whether the failures only say that ranks have not answered, and not why.
    """

    roots: tuple[FailureRecord, ...]
    ambiguous: bool
    certainty: str
    causes: dict[int, Cause]
    records: tuple[FailureRecord, ...] = ()
    unknown: tuple[Reference, ...] = field(default=())
    silent: bool = False

    def cause_of(self, record: FailureRecord) -> Cause | None:
        """Return why ``record`` is a victim; None for a root."""
        return next(
            (self.causes[i] for i, each in enumerate(self.records) if each is record and i in self.causes), None
        )


def judge(given: Sequence[FailureRecord], since: int = 0, about: Sequence[Reference] = ()) -> Verdict:
    """Find the root cause.

    Args:
        since: When the call was sent whose error is to be explained (monotonic ns). A failure whose error a caller had
            got before, or that a restart had repaired, is not its cause, unless the error carries that failure.
        about: The failures that the error is about, even if a caller had got their errors before.
    """
    known = _Known(sorted(given, key=_order))
    carried = {index: _carried(record, known) or _asked(record, known) for index, record in enumerate(known.records)}
    if since:
        known, carried = _of_interest(known, carried, since, about)
    records = known.records
    causes: dict[int, Cause] = {}
    for index, record in enumerate(records):
        cause = carried[index] or _own(record, known)
        if cause is not None and not _leads_back(record, cause, known, causes):
            causes[index] = cause
    free = [records[index] for index in range(len(records)) if index not in causes]
    active = [record for record in free if not is_consequence(record)]
    for index, record in enumerate(records):
        if index not in causes and is_consequence(record):
            cause = _inferred(record, active)
            if cause is not None:
                causes[index] = cause
    roots = [index for index in range(len(records)) if index not in causes]
    return _decided(records, roots, causes)


class _Known:
    """Records in their order, with indices to find them."""

    def __init__(self, records: list[FailureRecord]) -> None:
        self.records = records
        self.index_of = {id(record): index for index, record in enumerate(records)}
        self.of_rank: dict[tuple[str, int], list[FailureRecord]] = {}
        for record in records:
            for rank in {record.rank, *record.ranks}:
                self.of_rank.setdefault((record.mesh_id, rank), []).append(record)


def _was_over(record: FailureRecord, since: int) -> bool:
    return record.high < since and (record.waited_for or record.restarted or 0 < record.told < since)


def is_meant(record: FailureRecord, about: Reference) -> bool:
    """Whether a reference means exactly this failure."""
    here = record.mesh_id == about.mesh_id and (record.rank == about.rank or about.rank in record.ranks)
    return here and (record.id == about.failure if about.failure else record.kind != "exception")


def _of_interest(
    known: _Known, carried: Mapping[int, Cause | None], since: int, about: Sequence[Reference]
) -> tuple[_Known, dict[int, Cause | None]]:
    kept = {index for index, record in enumerate(known.records) if not _was_over(record, since)}
    for each in about:
        meant = [index for index, record in enumerate(known.records) if is_meant(record, each)]
        kept.update(meant[-1:])
    waiting = list(kept)
    while waiting:
        cause = carried[waiting.pop()]
        index = known.index_of.get(id(cause.record)) if cause is not None else None
        if index is not None and index not in kept:
            kept.add(index)
            waiting.append(index)
    order = sorted(kept)
    return _Known([known.records[index] for index in order]), {new: carried[old] for new, old in enumerate(order)}


def _order(record: FailureRecord) -> tuple[object, ...]:
    """Return a sort key: by time, and independent of the order in which the records came."""
    about = next((facts.about for facts in record.exception.all() if facts.about), None) if record.exception else None
    return record.high, record.mesh_id, record.rank, record.low, record.kind, record.id, record.headline, repr(about)


def _carried(record: FailureRecord, known: _Known) -> Cause | None:
    if record.exception is None:
        return None
    found = None
    for facts in record.exception.all():
        about = facts.about
        if about is None or about.rank < 0:
            continue
        other = _meant(about, record, known)
        if other is None and facts.type == STOPPED:
            continue
        why = f"its {facts.type.rpartition('.')[2]} is about {_whom(other, about)}"
        found = Cause("carried", why, other, about)
    return found  # the innermost one: the others only passed it on


def _asked(record: FailureRecord, known: _Known) -> Cause | None:
    if record.because is not None:
        other = _meant(record.because, record, known)
        return Cause("asked", f"it was asked about {_whom(other, record.because)}", other, record.because)
    if record.kind != "exception" or record.endpoint != "__init__" or not record.incarnation:
        return None
    before = [
        other
        for other in known.of_rank[record.address]
        if other.restarted and other.incarnation == record.incarnation - 1 and other.low <= record.high
    ]
    return (
        Cause("asked", f"it ran again after rank {record.rank} {before[-1].headline}", before[-1]) if before else None
    )


def _meant(about: Reference, record: FailureRecord, known: _Known) -> FailureRecord | None:
    of_rank = [other for other in known.of_rank.get((about.mesh_id, about.rank), ()) if other is not record]
    if about.failure:
        return next((other for other in of_rank if other.id == about.failure), None)
    before = [other for other in of_rank if other.low <= record.high]
    ended = [other for other in before if other.kind != "exception"]
    found = ended or before
    return found[-1] if found else None


def _whom(other: FailureRecord | None, about: Reference) -> str:
    if other is not None and other.kind == "host":
        return f"host {other.host}"
    return f"rank {about.rank}" + (f" of {other.mesh}" if other is not None else "")


def _own(record: FailureRecord, known: _Known) -> Cause | None:
    if record.kind not in ("exit", "signal") or record.signal == _SIGKILL:
        return None  # an exception of the process does not end it in this way
    before = [
        other
        for other in known.of_rank[record.address]
        if other.pid == record.pid
        and other.kind == "exception"
        and not other.waited_for
        and other.what != UNRAISABLE
        and record.high - _JUST_AFTER <= other.high <= record.high
    ]
    return Cause("own", "its own code had raised just before", before[-1]) if before else None


def _leads_back(record: FailureRecord, cause: Cause, known: _Known, causes: dict[int, Cause]) -> bool:
    """Whether ``record`` would be its own cause."""
    other, seen = cause.record, 0
    while other is not None and seen <= len(known.records):
        if other is record:
            return True
        further = causes.get(known.index_of[id(other)])
        other = further.record if further is not None else None
        seen += 1
    return seen > len(known.records)


def is_consequence(record: FailureRecord) -> bool:
    """Whether a failure is an error that a rank gets when its peer has ended."""
    if record.signal == _SIGPIPE:
        return True
    if record.exception is None:
        return False
    for facts in record.exception.all():
        names = {facts.type.rpartition(".")[2], *facts.bases}
        if names & _CONSEQUENCES or any(text in facts.message.lower() for text in _CONSEQUENCE_TEXTS):
            return True
    return False


def _is_time_out(record: FailureRecord) -> bool:
    names = (
        {name for facts in record.exception.all() for name in (facts.type, *facts.bases)} if record.exception else ()
    )
    return "TimeoutError" in names


def _inferred(record: FailureRecord, active: Sequence[FailureRecord]) -> Cause | None:
    within = _TIME_OUT_WITHIN if _is_time_out(record) else _WITHIN
    possible = [
        other
        for other in active
        if other.address != record.address and record.low - within <= other.high and other.low <= record.high
    ]
    if not possible:
        return None
    first = possible[0]
    what = record.exception.type.rpartition(".")[2] if record.exception is not None else "SIGPIPE"
    return Cause("inferred", f"{what} is what a rank gets whose peer has failed", first)


def _decided(records: list[FailureRecord], roots: list[int], causes: dict[int, Cause]) -> Verdict:
    groups: dict[object, list[int]] = {}
    for index in roots:
        groups.setdefault(alike(records[index]), []).append(index)
    # The first one of a group of failures that are alike counts.
    spans = [
        (min(records[index].high for index in group), min(records[index].low for index in group), group)
        for group in groups.values()
    ]
    spans.sort(key=lambda span: span[0])
    missing = {
        (cause.about.mesh_id, cause.about.rank): cause.about
        for cause in causes.values()
        if cause.record is None and cause.about is not None
    }
    unknown = tuple(missing.values())
    if not spans:
        return Verdict((), bool(unknown), "no record of it has come", causes, tuple(records), unknown)
    first_high = spans[0][0]
    candidates = [group for _, low, group in spans if low <= first_high]
    ambiguous = len(candidates) > 1 or bool(unknown)
    for _, low, group in spans:
        if low > first_high:
            for index in group:
                causes[index] = Cause("later", "nothing links it to the root but time", records[spans[0][2][0]])
    chosen = sorted(index for group in candidates for index in group)
    evidence = {cause.evidence for cause in causes.values()}
    silent = not ambiguous and all(records[index].kind == "silent" for index in chosen)
    if ambiguous:
        certainty = "nothing tells which came first"
    elif silent:
        certainty = "it is known who did not answer, not why"
    elif all(is_consequence(records[index]) for index in chosen):
        certainty = "the first that is known, though it looks like the consequence of another"
    elif "later" in evidence:
        certainty = "the first by time"
    elif "inferred" in evidence:
        certainty = "inferred: see above what speaks for it"
    else:
        certainty = "certain: no other failure comes from elsewhere"
    found = tuple(records[index] for index in chosen)
    return Verdict(found, ambiguous, certainty, causes, tuple(records), unknown, silent)
