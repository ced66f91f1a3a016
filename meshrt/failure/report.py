"""The report of an incident as text: what followed, where the other ranks were, and last the root cause.

The most important part is at the end, where a reader of a log looks first. Text from the program is shown so that it
cannot act on the terminal, and is cut; the file contains it in full.
"""

from __future__ import annotations

import itertools
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from meshrt.errors import one_line, user_stack
from meshrt.failure.causes import Cause, Verdict, grouped, is_meant
from meshrt.failure.incident import INTERRUPTED, Incident, IncidentMesh
from meshrt.failure.record import SCRIPT, ExceptionFacts, FailureRecord, Frame, LeftBehind, Reference
from meshrt.files import is_library_file
from meshrt.hooks.facts import IN_SCRIPT
from meshrt.inspect.merged import MergedStacks
from meshrt.inspect.text import render_stacks
from meshrt.selection import counted, fold_coordinates, fold_ranks

__all__ = ["apart", "left_lines", "named", "render", "render_record", "shown", "stack_lines"]

_WIDTH = 78
#: Characters of a line; of a headline.
_LINE = 160
_HEADLINE = 500
#: How much of the root cause is shown: frames, exceptions that it came from, variables, printed lines, stack lines.
_FRAMES = 6
#: Calls of which a process has died in one.
_CALLS = 4
_LINKED = 3
_LOCALS = 6
_LOG_LINES = 4
_STACK_LINES = 12
#: Groups of victims, lines of the stacks of other ranks, candidates.
_GROUPS = 6
_HEALTHY_LINES = 12
_CANDIDATES = 3
#: Seconds from which the age of stacks is shown.
_OLD = 0.5


def render(incident: Incident, verdict: Verdict | None = None) -> str:
    """Return the report; it ends with a newline."""
    return "\n".join(_Report(incident, verdict or incident.verdict()).lines()) + "\n"


def shown(text: str, most: int = _LINE) -> str:
    """Return ``text`` as one line of the report, of at most ``most`` characters."""
    return one_line(text, most)


class _Report:
    """The lines of one report."""

    def __init__(self, incident: Incident, verdict: Verdict) -> None:
        self._incident = incident
        self._verdict = verdict
        self._hang = incident.known_hang(verdict)
        self._root_high = min((root.high for root in verdict.roots), default=None)

    def lines(self) -> Iterator[str]:
        """Yield the lines, the root cause last."""
        yield "=" * _WIDTH
        yield self._head()
        victims = [record for record in self._verdict.records if self._verdict.cause_of(record) is not None]
        if victims:
            yield "-" * _WIDTH
            yield from self._followed(victims)
        healthy = list(self._healthy())
        if healthy:
            yield "-" * _WIDTH
            yield from healthy
        yield "-" * _WIDTH
        yield from self._roots()
        yield "=" * _WIDTH

    def _head(self) -> str:
        failed = {(record.mesh_id, rank) for record in self._verdict.records for rank in record.members}
        found: dict[str, list[float]] = {}
        for mesh in self._incident.meshes:
            ranks = [rank for mesh_id, rank in failed if mesh_id == mesh.mesh_id and rank >= 0]
            if ranks:
                sizes = ", ".join(f"{label}={size}" for label, size in mesh.sizes.items())
                who = f"{len(ranks)} of {mesh.total} ranks" if mesh.total > 1 else "the only rank"
                text = f"{who} of {mesh.name}" + (f" ({sizes})" if sizes else "")
                found.setdefault(text, []).append(self._incident.began - mesh.started)
        # A singleton that is started again is a mesh of the same name.
        words = [
            f"{text}, {_ago(after[0])}" if len(after) == 1 else f"{text}, {len(after)} times"
            for text, after in found.items()
        ]
        what = "INTERRUPTED while waiting for" if self._incident.outcome == INTERRUPTED else "FAILED"
        why = f": {self._hang.text}" if self._hang is not None else ""
        return shown(f"meshrt: {what} " + ("; ".join(words) or "in the program") + why, _HEADLINE)

    # -- what followed

    def _followed(self, victims: Sequence[FailureRecord]) -> Iterator[str]:
        groups = grouped(victims)
        linked = [group for group in groups if self._is_linked(group[0])]
        later = [group for group in groups if not self._is_linked(group[0])]
        if linked:
            yield f"CONSEQUENCES OF THE ROOT CAUSE  {counted(len({each.address for each in itertools.chain(*linked)}))}"
            yield from self._groups(linked)
        if later:
            yield "FAILED LATER, no other link to the root cause"
            yield from self._groups(later)

    def _groups(self, groups: Sequence[Sequence[FailureRecord]]) -> Iterator[str]:
        for group in groups[:_GROUPS]:
            first = group[0]
            cause = self._cause(first)
            yield f"  {len(group)} x {shown(first.headline)}"
            yield f"      {self._who(group)}{self._when(first)}{_in(first)}"
            yield f"      reason: {shown(_why(cause))}"
        if len(groups) > _GROUPS:
            rest = [record for group in groups[_GROUPS:] for record in group]
            yield f"  and {counted(len(groups) - _GROUPS, 'other kind')} on {self._who(rest)}"

    def _when(self, record: FailureRecord) -> str:
        if self._root_high is None:
            return ""
        after = (record.high - self._root_high) / 1e9
        return f", {f'{_span(after)} after' if after >= 0 else f'noted {_span(-after)} before'} the root cause"

    def _is_linked(self, record: FailureRecord) -> bool:
        """Whether evidence leads from a victim to a root."""
        for _ in self._verdict.records:
            cause = self._cause(record)
            if cause.evidence == "later":
                return False
            if cause.record is None or self._verdict.cause_of(cause.record) is None:
                return True
            record = cause.record
        return True

    def _cause(self, record: FailureRecord) -> Cause:
        return self._verdict.cause_of(record) or Cause("later", "", None)

    def _who(self, records: Iterable[FailureRecord]) -> str:
        ranks: dict[str, set[int]] = {}
        for record in records:
            ranks.setdefault(record.mesh_id, set()).update(record.members)
        words: Counter[str] = Counter()
        for mesh_id, members in ranks.items():
            if not mesh_id and members == {-1}:
                words[SCRIPT] += 1
                continue
            mesh = self._incident.mesh(mesh_id)
            name = f" of {mesh.name}" if len(self._incident.meshes) > 1 and mesh.name else ""
            words[_set(mesh, members) + name] += 1
        # Several meshes may have one name: those of a singleton that was made again and again.
        return " and ".join(word if count == 1 else f"{word} ({count} times)" for word, count in words.items())

    # -- who did not fail

    def _healthy(self) -> Iterator[str]:
        # Includes failures that the verdict ignores: a rank that had ended before has no stack.
        failed = {(record.mesh_id, rank) for record in self._incident.records for rank in record.members}
        if self._hang is not None:
            failed.update((mesh_id, rank) for mesh_id, ranks in self._hang.reached.items() for rank in ranks)
        alive = {(mesh.mesh_id, rank) for mesh in self._incident.meshes for rank in mesh.alive}
        count = len(alive - failed)
        if not count:
            return
        yield f"DID NOT FAIL  {counted(count, 'rank')}; stacks {self._age()}:"
        if not self._incident.stacks.meshes:
            yield f"  not known: {self._incident.stacks_why or 'stacks not collected'}"
            return
        lines = stack_lines(self._incident.stacks)
        yield from (f"  {line}" for line in lines[:_HEALTHY_LINES])
        if len(lines) > _HEALTHY_LINES:
            yield f"  ... {counted(len(lines) - _HEALTHY_LINES, 'more line')}: {self._command()}"

    def _age(self) -> str:
        """Return how long before (or after) the root the stacks were taken."""
        high = min((root.high for root in self._verdict.roots if root.time), default=0)
        before = (high - self._incident.asked) / 1e9 if high and self._incident.asked else 0.0
        if abs(before) <= _OLD:
            return "at that time"
        return f"{_span(abs(before))} {'before' if before > 0 else 'after'} the root cause"

    def _command(self) -> str:
        return f"meshrt postmortem {shlex.quote(self._incident.found_by or self._incident.run_id)}"

    # -- the root

    def _roots(self) -> Iterator[str]:
        roots = grouped(self._verdict.roots)
        if self._verdict.ambiguous:
            roots.sort(key=lambda group: (group[0].mesh_id, group[0].rank))
        if not roots:
            names = ", ".join(map(self._unknown, self._verdict.unknown)) or "unknown"
            yield f"ROOT CAUSE  {names} (no record received)"
            yield f"  more     {self._command()}"
            return
        if self._verdict.ambiguous:
            yield f"ROOT CAUSE  AMBIGUOUS: one of {len(roots) + len(self._verdict.unknown)}; {self._verdict.certainty}"
            for about in self._verdict.unknown:
                yield f"  {self._unknown(about)} (no record received)"
            for group in roots[:_CANDIDATES]:
                yield from self._root(group, "CANDIDATE ")
            if len(roots) > _CANDIDATES:
                yield f"  and {counted(len(roots) - _CANDIDATES, 'more candidate')}"
        else:
            yield from self._root(roots[0], "ROOT CAUSE", f"  [{self._verdict.certainty}]")
        rank = next(iter(self._incident.likely(roots[0][0])), roots[0][0].rank)
        if self._hang is not None:
            rank = self._hang.first(roots[0][0].mesh_id)
        yield f"  more     {self._command()}" + (f" --ranks {rank}" if rank >= 0 else "")

    def _unknown(self, about: Reference) -> str:
        name = self._incident.mesh(about.mesh_id).name
        return shown(f"rank {about.rank}" + (f" of {name}" if name else ""))

    def _root(self, group: Sequence[FailureRecord], title: str, note: str = "") -> Iterator[str]:
        record = group[0]
        likely = self._incident.likely(record)
        whose = ""
        if self._hang is not None:
            yield shown(f"{title}  {self._hang.text}{note}", _HEADLINE)
            whose = f"{named(record)} "
        elif likely:
            who = f"{record.actor} {apart(self._incident, record)} of {record.mesh}"
            others = counted(len(record.ranks) - len(likely), "rank")
            note = f"  [likely: at another place than the other {others} that did not answer]"
            yield shown(f"{title}  {who}{note}", _HEADLINE)
        elif len({other.address for other in group}) > 1:
            yield f"{title}  {self._who(group)} failed in the same way{note}"
            yield f"  first    {named(record) if record.rank < 0 else shown(str(record.place))}"
        else:
            times = f", {len(group)} times" if len(group) > 1 else ""
            yield shown(f"{title}  {named(record)}{times}{note}", _HEADLINE)
        # The call in which a process ended is known only if the script got an error about that very end.
        about = self._incident.about
        told = record.endpoint or not about or any(is_meant(other, each) for each in about for other in group)
        yield from details(record, self._incident.caller, self._incident.call if told else "", whose=whose)
        stacks = self._hang.stacks if self._hang is not None else self._incident.hung
        if (record.kind == "silent" or self._hang is not None) and stacks.meshes:
            yield "  stacks   of these ranks"
            yield from (f"    {line}" for line in stack_lines(stacks))


def details(
    record: FailureRecord, caller: str = "", call: str = "", *, full: bool = False, whose: str = ""
) -> Iterator[str]:
    """Return the lines about one failure.

    Args:
        full: Show everything; otherwise long parts are cut.
        whose: Text before the headline.
    """
    many = 1_000_000
    yield f"  what     {shown(whose + record.headline, many if full else _HEADLINE)}"
    where = _in(record).removeprefix(", in ")
    if not where and record.waited_for and (record.doing or call):
        where = f"during {shown(_one_of(record.doing) or call)}"
    if where:
        mine = call == f"{record.actor}.{record.endpoint}()" or (not record.endpoint and record.doing in ((), (call,)))
        yield f"  where    {where}" + (f", called at {shown(caller)}" if record.waited_for and caller and mine else "")
    if record.time:
        clock = time.strftime("%H:%M:%S", time.localtime(record.time)) + f".{int(record.time % 1 * 1000):03d}"
        stray = record.kind == "exception" and not record.waited_for and record.what != IN_SCRIPT
        yield f"  when     {clock}" + (", and no caller waited for this error" if stray else "")
    if record.incarnation:
        yield f"  restart  this process was started by restart {record.incarnation} of the rank"
    if record.restarted:
        yield "  then     the rank was restarted"
    fate = record.fate
    if record.kind == "signal" and not (fate and fate.hint):
        yield "  sender   not meshrt"
    if record.exception is not None:
        yield from _exception(record.exception, full)
    elif fate is not None and fate.stack:
        lines = user_stack(fate.stack).splitlines()
        yield f"  stack    {shown(lines[0])}"
        yield from (f"    {shown_line(line)}" for line in lines[1 : many if full else _STACK_LINES])
    if record.left is not None:
        yield from left_lines(record.left, full)
    tail = fate.log_tail if fate is not None else ()
    kept = tail if full else tail[-_LOG_LINES:]
    if kept:
        yield f"  printed  its last {counted(len(kept), 'line')}"
        yield from (f"    | {shown(line)}" for line in kept)
    if record.copies:
        yield f"  before   {counted(record.copies, 'earlier failure')} of this rank: counted, not recorded"


def render_record(record: FailureRecord, incident: Incident, verdict: Verdict) -> str:
    """Return everything about one failure, for ``meshrt postmortem --ranks``."""
    cause = verdict.cause_of(record)
    role = "a root cause" if cause is None else f"a consequence: {_why(cause)}"
    if cause is None and record.kind == "silent":
        likely, hang = apart(incident, record), incident.known_hang(verdict)
        if hang is not None:
            role = f"{hang.text}  [{hang.certainty}]"
        else:
            role = f"likely caused by {likely}, at another place than the others" if likely else verdict.certainty
    lines = [shown(f"{named(record)}: {role}", _HEADLINE), *details(record, incident.caller, incident.call, full=True)]
    return "\n".join(lines) + "\n"


def _exception(error: ExceptionFacts, full: bool) -> Iterator[str]:
    many = 1_000_000
    frames = error.frames
    if frames:
        yield "  stack    (most recent call last)"
        yield from _stack(error, many) if full else _brief(error)
    for linked in list(error.all())[1 : many if full else 1 + _LINKED]:
        place = f"  ({_at(linked.frames[-1])})" if linked.frames else ""
        word = {"cause": "caused by", "context": "while handling", "member": "with"}.get(linked.relation, "with")
        yield f"  {word} {shown(linked.headline)}{place}"
        if full:
            yield from _stack(linked, many)
    for note in error.notes:
        yield f"  note     {shown(note)}"
    with_locals = [frame for frame in frames if frame.locals]
    for frame in reversed(with_locals if full else with_locals[-1:]):
        yield f"  locals   of {frame.function}"
        names = list(frame.locals)
        for name in names if full else names[:_LOCALS]:
            yield f"    {shown(name)} = {shown(frame.locals[name])}"
        if not full and len(names) > _LOCALS:
            yield f"    ... {len(names) - _LOCALS} more"


def left_lines(left: LeftBehind, full: bool) -> Iterator[str]:
    """Return the lines about what a process, or a child of it, has written to its error file."""
    problem = f"  ({shown(left.problem)})" if left.problem else ""
    yield f"  wrote    {shown(left.message)}{problem}"
    lines = left.traceback.rstrip().splitlines()
    yield from (f"    {shown_line(line)}" for line in (lines if full else lines[-_FRAMES:]))


def _one_of(calls: Sequence[str]) -> str:
    more = len(calls) - _CALLS
    return " or ".join([*calls[:_CALLS], *([f"{more} more"] if more > 0 else [])])


def _brief(error: ExceptionFacts) -> Iterator[str]:
    """Return the lines of the last frames; if all of them are of libraries, of the user's last one as well."""
    frames = error.frames
    own = max((index for index, frame in enumerate(frames) if not is_library_file(frame.file)), default=len(frames))
    if own >= len(frames) - _FRAMES:
        yield from _stack(error, _FRAMES)
        return
    last = frames[-_FRAMES + 1 :]
    missing_below = error.left_out if own < len(frames) // 2 else 0
    if above := own + error.left_out - missing_below:
        yield f"    ... {counted(above, 'frame')}"
    yield from _frame(frames[own])
    if left := len(frames) - own - 1 - len(last) + missing_below:
        yield f"    ... {counted(left, 'frame')} of libraries"
    for frame in last:
        yield from _frame(frame)


def _stack(error: ExceptionFacts, most: int) -> Iterator[str]:
    """Return the lines of the last frames; what is above them, missing, or equal to the one before, is counted."""
    half = len(error.frames) // 2 if error.left_out else 0
    # A frame and how often it is there in a row; None: so many are missing.
    items: list[tuple[Frame | None, int]] = []
    for part in (error.frames[:half], error.frames[half:]):
        if items:
            items.append((None, error.left_out))
        items += [(next(run), 1 + len(list(run))) for _, run in itertools.groupby(part, key=_place)]
    if above := sum(count for _, count in items[:-most]):
        yield f"    ... {counted(above, 'frame')}"
    for frame, count in items[-most:]:
        if frame is None:
            yield f"    ... {counted(count, 'frame')}"
            continue
        yield from _frame(frame)
        if count > 1:
            yield f"      ... {counted(count - 1, 'more time')}"


def _frame(frame: Frame) -> Iterator[str]:
    yield f"    {_at(frame)}, in {shown(frame.function)}"
    if frame.source:
        yield f"      {shown(frame.source)}"


def _place(frame: Frame) -> tuple[str, int, str]:
    return frame.file, frame.line, frame.function


def _why(cause: Cause) -> str:
    return cause.why + (" (inferred)" if cause.evidence == "inferred" else "")


def _at(frame: Frame) -> str:
    return f'File "{shown(frame.file)}", line {frame.line}'


def named(record: FailureRecord) -> str:
    """Return the name of what failed: a rank, the ranks that did not answer, or a host."""
    if record.kind == "host":
        return f"host {record.host or '?'}"
    if record.of_script:
        return shown(f"{SCRIPT} on {record.host}, pid {record.pid}")
    if record.kind == "silent" and len(record.ranks) > 1:
        return shown(f"{record.actor} ranks {fold_ranks(record.ranks)} of {record.mesh}")
    prefix = "" if record.actor else f"{record.mesh} "
    return shown(f"{prefix}{record.place}")


def apart(incident: Incident, record: FailureRecord) -> str:
    """Return which of the ranks that did not answer probably blocks the others; "" if that is not known."""
    likely = incident.likely(record)
    return _set(incident.mesh(record.mesh_id), set(likely)) if likely else ""


def _in(record: FailureRecord) -> str:
    if record.what:
        return f", in {shown(record.what)}"
    if record.endpoint:
        return f", in {shown(record.actor)}.{shown(record.endpoint)}()"
    return ""


def _set(mesh: IncidentMesh, members: set[int]) -> str:
    known = {rank for rank in members if rank >= 0}
    folded = fold_ranks(known)
    if len(known) == mesh.total > 1:
        return f"all {len(known)} ranks"
    text = ""
    if mesh.sizes and known and max(known) < mesh.total:
        text = fold_coordinates(known, mesh.shape)
    return f"{'rank' if len(known) == 1 else 'ranks'} {folded}" + (f" ({text})" if text and text != folded else "")


def shown_line(line: str) -> str:
    """Return ``line`` as `shown` does, with its indentation."""
    indentation = len(line) - len(line.lstrip())
    return " " * indentation + shown(line)


def stack_lines(stacks: MergedStacks) -> list[str]:
    """Return merged stacks as lines of the report; damaged data gives no error."""
    try:
        text = render_stacks(stacks, source=lambda _file, _line: "", once=True)
    except (ValueError, IndexError):  # numbers in a file may be any
        return ["not known: this part of the file is damaged"]
    return [shown_line(line) for line in text.split("\n")]


def _span(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _ago(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes} min {rest} s after its start" if minutes else f"{max(0.0, seconds):.1f} s after its start"
