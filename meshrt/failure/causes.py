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
span (`FailureRecord.low`, `high`). Times of two machines are compared only as exactly as their clocks are
(`FailureRecord.slack`). The end of a process by SIGKILL, SIGSEGV and the like may be noticed up to 0.1 s after its
peers have got their errors. Source of the idea: cause before time. TorchElastic's reports take the first of equal
seconds, which names victims.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshrt.failure.record import ExceptionFacts, FailureRecord, Reference
from meshrt.hooks.facts import UNRAISABLE
from meshrt.program.groups import by_key

__all__ = ["STOPPED", "Cause", "Verdict", "grouped", "is_consequence", "is_meant", "judge", "tells_of_peer"]

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
    "timed out waiting",
)  # fmt: skip
_SIGKILL, _SIGPIPE = 9, 13
#: Signals that end a process and that no end of a peer brings: SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV.
_OF_ITS_OWN = frozenset({4, 7, 8, _SIGKILL, 11})
#: On a loaded machine such an end is noticed so much later than by a peer, ns: which of the two processes runs first is
#: not known, and a virtual machine does not count the time for which it has not run.
_NOTICED_LATE = 100_000_000
#: A consequence comes at most so much later, ns; a time-out may come later than that.
_WITHIN = 30_000_000_000
_TIME_OUT_WITHIN = 2 * 3600 * 1_000_000_000
#: The end of a process comes at most so long after the exception that ended it, ns.
_JUST_AFTER = 2_000_000_000
#: Parts of a text that differ between ranks that fail alike: numbers, addresses, quoted names with numbers in them.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_HEAD = 300


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
        causes: The causes of the victims, by the `id` of their records.
        records: All failures, in the order in which they happened.
        unknown: Ranks or failures that evidence names and that have no record.
        silent: Whether the failures only say that ranks have not answered, and not why.
    """

    roots: tuple[FailureRecord, ...]
    ambiguous: bool
    certainty: str
    causes: dict[int, Cause]
    records: tuple[FailureRecord, ...] = ()
    unknown: tuple[Reference, ...] = ()
    silent: bool = False

    def cause_of(self, record: FailureRecord) -> Cause | None:
        """Return why ``record`` is a victim; None for a root."""
        return self.causes.get(id(record))


def judge(given: Sequence[FailureRecord], since: int = 0, about: Sequence[Reference] = ()) -> Verdict:
    """Find the root cause.

    Args:
        since: When the call was sent whose error is to be explained (monotonic ns). A failure whose error a caller had
            got before, or that a restart had repaired, is not its cause, unless the error carries that failure.
        about: The failures that the error is about, even if a caller had got their errors before.
    """
    known = _Known(sorted(given, key=_order))
    carried = {id(record): _carried(record, known) or _asked(record, known) for record in known.records}
    if since:
        known = _of_interest(known, carried, since, about)
    causes: dict[int, Cause] = {}
    for record in known.records:
        cause = carried[id(record)] or _own(record, known)
        if cause is not None and not _leads_back(record, cause, causes):
            causes[id(record)] = cause
    free = [record for record in known.records if id(record) not in causes]
    active = [record for record in free if not is_consequence(record)]
    for record in filter(is_consequence, free):
        cause = _inferred(record, active)
        if cause is not None:
            causes[id(record)] = cause
    return _decided(known.records, causes)


class _Known:
    """Records in their order, and by rank."""

    def __init__(self, records: list[FailureRecord]) -> None:
        self.records = records
        members = ((record, {record.rank, *record.ranks}) for record in records)
        self.of_rank = by_key(((record.mesh_id, rank), record) for record, ranks in members for rank in ranks)


def _was_over(record: FailureRecord, since: int) -> bool:
    known = record.waited_for or record.restarted
    return 0 < record.told < since or (known and record.high + record.clock_error < since)


def is_meant(record: FailureRecord, about: Reference) -> bool:
    """Whether a reference means exactly this failure."""
    here = record.mesh_id == about.mesh_id and (record.rank == about.rank or about.rank in record.ranks)
    return here and (record.id == about.failure if about.failure else record.kind != "exception")


def _of_interest(known: _Known, carried: Mapping[int, Cause | None], since: int, about: Sequence[Reference]) -> _Known:
    """Return the failures that may have caused an error: see `judge`."""
    waiting = [record for record in known.records if not _was_over(record, since)]
    for each in about:
        waiting += [record for record in known.records if is_meant(record, each)][-1:]
    kept: set[int] = set()
    while waiting:
        record = waiting.pop()
        cause = carried[id(record)]
        if id(record) not in kept and cause is not None and cause.record is not None:
            waiting.append(cause.record)
        kept.add(id(record))
    return _Known([record for record in known.records if id(record) in kept])


def _order(record: FailureRecord) -> tuple[object, ...]:
    """Return a sort key: by time, and independent of the order in which the records came."""
    about = next((facts.about for facts in record.exceptions() if facts.about), None)
    return record.high, record.mesh_id, record.rank, record.low, record.kind, record.id, record.headline, repr(about)


def _carried(record: FailureRecord, known: _Known) -> Cause | None:
    found = None
    for facts in record.exceptions():
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
        return Cause("asked", f"it handles the failure of {_whom(other, record.because)}", other, record.because)
    if record.kind != "exception" or record.endpoint != "__init__" or not record.incarnation:
        return None
    before = [
        other
        for other in known.of_rank[record.address]
        if other.restarted and other.incarnation == record.incarnation - 1 and other.may_precede(record)
    ]
    if not before:
        return None
    return Cause("asked", f"__init__ ran again after rank {record.rank} {before[-1].headline}", before[-1])


def _meant(about: Reference, record: FailureRecord, known: _Known) -> FailureRecord | None:
    of_rank = [other for other in known.of_rank.get((about.mesh_id, about.rank), ()) if other is not record]
    if about.failure:
        return next((other for other in of_rank if other.id == about.failure), None)
    before = [other for other in of_rank if other.may_precede(record)]
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
    return Cause("own", "its own code raised an exception just before", before[-1]) if before else None


def _leads_back(record: FailureRecord, cause: Cause, causes: Mapping[int, Cause]) -> bool:
    """Whether ``record`` would be its own cause."""
    other = cause.record
    while other is not None and other is not record:
        further = causes.get(id(other))
        other = further.record if further is not None else None
    return other is record


def is_consequence(record: FailureRecord) -> bool:
    """Whether a failure is an error that a rank gets when its peer has ended."""
    return record.signal == _SIGPIPE or any(map(tells_of_peer, record.exceptions()))


def tells_of_peer(facts: ExceptionFacts) -> bool:
    """Whether an exception is an error that a rank gets when its peer has ended, whatever it came from."""
    names = {facts.type.rpartition(".")[2], *facts.bases}
    return bool(names & _CONSEQUENCES) or any(text in facts.message.lower() for text in _CONSEQUENCE_TEXTS)


def _is_time_out(record: FailureRecord) -> bool:
    return any(
        "TimeoutError" in (facts.type, *facts.bases) or "timed out waiting" in facts.message.lower()
        for facts in record.exceptions()
    )


def _inferred(record: FailureRecord, active: Sequence[FailureRecord]) -> Cause | None:
    within = _TIME_OUT_WITHIN if _is_time_out(record) else _WITHIN
    possible = [
        other
        for other in active
        if other.address != record.address
        and record.low - within <= other.high + other.slack(record)
        and (other.may_precede(record) or _was_noticed_late(other, record))
    ]
    if not possible:
        return None
    what = record.exception.type.rpartition(".")[2] if record.exception is not None else "SIGPIPE"
    return Cause("inferred", f"{what} is the error of a rank whose peer has failed", possible[0])


def _was_noticed_late(other: FailureRecord, record: FailureRecord) -> bool:
    return other.signal in _OF_ITS_OWN and other.low - _NOTICED_LATE <= record.high + other.slack(record)


def _decided(records: Sequence[FailureRecord], causes: dict[int, Cause]) -> Verdict:
    groups = by_key((_alike(record), record) for record in records if id(record) not in causes)
    missing = {
        (cause.about.mesh_id, cause.about.rank): cause.about
        for cause in causes.values()
        if cause.record is None and cause.about is not None
    }
    unknown = tuple(missing.values())
    if not groups:
        return Verdict((), bool(unknown), "no record received", causes, tuple(records), unknown)
    # The first one of a group of failures that are alike counts.
    first = min(groups.values(), key=lambda group: min(record.high for record in group))
    earliest = min(first, key=lambda record: record.high)
    others = [group for group in groups.values() if group is not first]
    later = [group for group in others if not any(record.may_precede(earliest) for record in group)]
    for record in (record for group in later for record in group):
        causes[id(record)] = Cause("later", "later; no other link to the root cause", first[0])
    chosen = tuple(record for record in records if id(record) not in causes)
    ambiguous = len(groups) - len(later) > 1 or bool(unknown)
    evidence = {cause.evidence for cause in causes.values()}
    silent = not ambiguous and all(record.kind == "silent" for record in chosen)
    if ambiguous:
        certainty = "the order of the failures is not known"
        slack = max((record.slack(earliest) for record in chosen if record.low > earliest.high), default=0)
        if slack:
            certainty += f": the difference of their clocks is known only to within {slack / 1e6:.3g} ms"
    elif silent:
        certainty = "rank known, reason unknown"
    elif all(map(is_consequence, chosen)):
        certainty = "first known failure; probably caused by another"
    elif "later" in evidence:
        certainty = "the first by time"
    elif "inferred" in evidence:
        certainty = "inferred: the reasons are above"
    else:
        certainty = "certain: all other failures follow from it"
    return Verdict(chosen, ambiguous, certainty, causes, tuple(records), unknown, silent)


# -- failures that are alike: the same kind, the same masked text, raised at the same place


def _alike(record: FailureRecord) -> Hashable:
    """Return a key that is equal for failures that a user would call the same."""
    error = record.exception
    if error is None:
        hint = record.hint if record.fate is None else record.fate.hint
        return record.kind, record.exit_code, record.signal, _masked(hint), record.endpoint
    chain = tuple(
        (each.type, _masked(each.message), tuple((frame.file, frame.line, frame.function) for frame in each.frames))
        for each in error.all()
    )
    return record.kind, record.actor, record.endpoint, _masked(record.what), chain


def grouped(records: Iterable[FailureRecord]) -> list[list[FailureRecord]]:
    """Return the records in groups that are alike, in the order in which they failed."""
    ordered = sorted(records, key=lambda record: (record.high, record.mesh, record.rank))
    return list(by_key((_alike(record), record) for record in ordered).values())


def _masked(text: str) -> str:
    return _VARIABLE.sub("#", text.strip()[:_HEAD])
