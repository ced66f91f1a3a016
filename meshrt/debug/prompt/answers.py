"""Terminal side: the results of a request to many ranks, gathered from reports and shown grouped. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from meshrt.debug.operations import JobReport, Kind
from meshrt.debug.prompt.numbers import array_difference, dict_difference, number_in, summary, summed_arrays
from meshrt.errors import UsageError
from meshrt.escapes import escaped
from meshrt.hooks.facts import Body
from meshrt.inspect.capping import without_addresses
from meshrt.inspect.facts import Facts
from meshrt.inspect.shortening import lines_of, shortened
from meshrt.selection import fold_ranks, group_by_value

__all__ = ["Answers"]

#: More different numbers or arrays than this are not listed one by one, unless asked for.
_MANY = 16
_EVERY = "(-v shows all)"

#: What is said of an answer that is the same as another, and of one that is so but for addresses.
_SAME = "the same"
_ALIKE = "equal except for addresses; the contents of these objects are not compared (compare their vars(...))"
#: Lines of an answer that are shown at least, and of all answers of an actor at most: further ones are counted.
_LEAST_LINES = 10
_MOST_LINES = 120
#: Lines up to which the answer that others are compared with is shown above the differences.
_BRIEF_LINES = 3

#: Kinds of ranks that did not get the request.
_NOT_ASKED = ("held", "busy", "running", "missing", "stopped")
_OUTCOMES = {
    "resumed": "resumed",
    "asked": "asked to resume",
    "ended": "endpoint finished",
    "aborted": "aborted",
    "gone": "ended",
    "silent": "no answer",
    "refused": "refused",
    "idle": "no endpoint is running",
    "blocked": "not stopped yet",
    "stopped": "stopped already",
    "held": "not asked",
    "busy": "not asked",
    "running": "running",
    "missing": "not stopped",
    "empty": "no line printed",
    "elsewhere": "meshrt keeps no output of ranks that a launcher has started; the launcher has their output",
}
_WITH_REASON = ("asked", "gone", "silent", "refused", "blocked", "held", "busy", "running")


#: Matches a line inside a longer text that looks like the head of the next answer.
_HEAD = re.compile(r"^\[(?=(?:[\w-]+ )?\d[\d,:-]*\])", re.M)


class _Answer(NamedTuple):
    rank: int
    text: str
    facts: Facts | None
    failed: bool


class Answers:
    """The results of a request, by actor, kind and rank (kinds: see `meshrt.debug.operations`)."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, Kind], list[_Answer]] = {}
        self.waiting: Mapping[str, Sequence[int]] = {}
        self.done = False
        #: The program has closed the connection: no more reports will come.
        self.lost = False
        #: How many of the ranks that have not answered were told to cancel what they run.
        self.cancelled = 0

    def add(self, report: JobReport) -> None:
        """Take in one report of a job."""
        for answer in report.answers:
            members = self._kinds.setdefault((answer.actor, answer.kind), [])
            text = answer.text.rstrip("\n")
            members += [_Answer(rank, text, answer.facts, answer.failed) for rank in answer.ranks]
        self.waiting = report.waiting
        self.done = report.done

    def ranks(self, *kinds: str) -> list[int]:
        """Return the ranks (of all actors) whose answer is one of ``kinds``."""
        return [answer.rank for (_, kind), members in self._kinds.items() if kind in kinds for answer in members]

    def errors(self) -> list[int]:
        """Return the ranks (of all actors) on which the line failed."""
        return [answer.rank for members in self._kinds.values() for answer in members if answer.failed]

    @property
    def sent(self) -> int:
        """How many ranks got the request."""
        got = [kind for _, kind in self._kinds if kind not in _NOT_ASKED]
        return len(self.ranks(*got)) + self.unanswered

    @property
    def unanswered(self) -> int:
        """How many ranks have not answered yet."""
        return sum(map(len, self.waiting.values()))

    def check_against(self, rank: int | None) -> None:
        """Raise UsageError if answers are to be compared with that of a rank that was not asked."""
        labels = {label for label, _ in self._kinds} | set(self.waiting)
        there = {each for label in labels for each in self._asked(label)}
        if rank is not None and there and rank not in there:
            raise UsageError(f"rank {rank} is not among the ranks that were asked; expected one of {fold_ranks(there)}")

    def pending(self) -> str:
        """Return the progress: ``"12/16 answered, waiting for 3,7-9"``."""
        ranks = ", ".join(
            f"{label + ' ' if len(self.waiting) > 1 else ''}{fold_ranks(ranks)}"
            for label, ranks in self.waiting.items()
        )
        return f"{self.sent - self.unanswered}/{self.sent} answered, waiting for {ranks}"

    def _asked(self, label: str) -> list[int]:
        """Return the ranks of an actor that the request names, ascending."""
        ranks = [answer.rank for (actor, _), members in self._kinds.items() if actor == label for answer in members]
        return sorted({*ranks, *self.waiting.get(label, ())})

    def text(
        self,
        *,
        every: bool = False,
        against: int | None = None,
        most: int | None = None,
        shown: Callable[[str], str] = escaped,
    ) -> str:
        """Return all results: answers grouped by equal text, then the ranks without an answer, and why.

        Args:
            every: Show every answer, also where numbers are summed up.
            against: A rank: for the others, show the differences from its answer.
            most: Lines that all answers together should take: long ones are cut, and say how much is left out.
            shown: Makes the text safe for a terminal.
        """
        several = len({label for label, _ in self._kinds}) > 1
        lines: list[str] = []
        for (label, kind), members in self._kinds.items():
            if kind == "answered":
                prefix = f"{label} " if several else ""
                if against is not None:
                    lines += _diff(prefix, members, against, most, self._asked(label))
                else:
                    lines += _shown(prefix, members, every, most)
        for (label, kind), members in self._kinds.items():
            if kind != "answered":
                for ranks, text in _grouped(members):
                    lines += _outcome(label, kind, ranks, text)
        return shown("\n".join(lines))

    def data(self) -> Body:
        """Return the same as plain data: groups of equal answers, and the ranks that have not answered."""
        answers = []
        for (label, kind), members in self._kinds.items():
            for ranks, text in _grouped(members):
                first = next(answer for answer in members if answer.rank == ranks[0])
                answers.append(
                    {
                        "actor": label,
                        "kind": kind,
                        "ranks": list(ranks),
                        "text": text,
                        "facts": msgspec.to_builtins(first.facts),
                        "failed": first.failed,
                    }
                )
        return {"answers": answers, "waiting": {label: list(ranks) for label, ranks in self.waiting.items()}}


def _grouped(members: Iterable[_Answer]) -> list[tuple[tuple[int, ...], str]]:
    return group_by_value((answer.rank, answer.text) for answer in members)


def _alike(members: Iterable[_Answer]) -> list[tuple[tuple[int, ...], str]]:
    """Like `_grouped`, but ignore addresses of objects, which differ from rank to rank."""
    texts = {answer.rank: answer.text for answer in members}
    groups = []
    for ranks, text in group_by_value((rank, without_addresses(text)) for rank, text in texts.items()):
        exact = {texts[rank] for rank in ranks}
        groups.append((ranks, exact.pop() if len(exact) == 1 else text))
    return groups


def _each(most: int | None, count: int) -> int | None:
    """Return the lines that each of ``count`` answers may take; None: no limit."""
    return None if most is None else max(_LEAST_LINES, most // max(1, count))


def _shown(prefix: str, members: Sequence[_Answer], every: bool, most: int | None) -> list[str]:
    groups = _alike(members)
    answers = [(answer.rank, answer.text, answer.facts) for answer in members]
    line = summary(answers)
    if len(groups) > _MANY and not every:
        if line and all(number_in(answer.text, answer.facts) is not None for answer in members):
            return [f"[{prefix}{fold_ranks(a.rank for a in members)}] {len(groups)} values: {line}", _EVERY]
        if arrays := summed_arrays(answers):
            return [*(f"[{prefix}{fold_ranks(ranks)}] {text}" for ranks, text in arrays), _EVERY]
    each = _each(most, len(groups))
    parts = [(_answer(prefix + fold_ranks(ranks), shortened(text, each)), ranks) for ranks, text in groups]
    lines = _limited(parts, most)
    return [*lines, line] if line else lines


def _limited(parts: Sequence[tuple[str, Sequence[int]]], most: int | None) -> list[str]:
    """Return answers, each with its ranks, without those behind `_MOST_LINES` lines: these are counted."""
    lines: list[str] = []
    room = _MOST_LINES
    for number, (text, _) in enumerate(parts):
        room -= lines_of(text)
        if most is not None and room < 0 < len(parts) - number - 1:
            left = fold_ranks(rank for _, further in parts[number:] for rank in further)
            return [*lines, f"... {len(parts) - number} more answers, of ranks {left} {_EVERY}"]
        lines.append(text)
    return lines


def _diff(prefix: str, members: Sequence[_Answer], against: int, most: int | None, asked: Sequence[int]) -> list[str]:
    reference = next((answer for answer in members if answer.rank == against), None)
    if reference is None:
        absent = f"is not among the ranks that were asked ({fold_ranks(asked)})"
        why = f"rank {against} {'has not answered' if against in asked else absent}: there is nothing to compare with"
        return [why, *_shown(prefix, members, every=False, most=most)]
    groups = _alike(members)
    parts: list[tuple[str, Sequence[int]]] = []
    by_item = False
    for ranks, text in groups:
        others = [rank for rank in ranks if rank != against]
        if without_addresses(text) == without_addresses(reference.text):
            how = _SAME if reference.text == without_addresses(reference.text) else _ALIKE
            parts += [(f"[{prefix}{fold_ranks(others)}] {how}", others)] if others else []
            continue
        facts = next(answer.facts for answer in members if answer.rank == ranks[0])
        items = dict_difference(facts, reference.facts)
        by_item = by_item or bool(items)
        changes = _changes(prefix + fold_ranks(others), text, facts, reference, items)
        parts.append((shortened("\n".join(changes), _each(most, len(groups) - 1)), others))
    brief = most is None or lines_of(reference.text) <= _BRIEF_LINES
    shown = _answer(f"{prefix}{against}", shortened(reference.text, None if brief else _LEAST_LINES))
    lines = _limited(parts, most)
    # The differences matter most: a long text above them would push them off the screen.
    return [*lines, shown] if by_item and not brief else [shown, *lines]


def _changes(who: str, text: str, facts: Facts | None, reference: _Answer, items: Sequence[str] | None) -> list[str]:
    """Return how ``text`` differs from the answer ``reference``; ``items``: the items of a dict that differ."""
    if items:  # dicts without a different item differ in their order, for instance
        return [f"[{who}] items that differ: {len(items)}", *(f"  {item}" for item in items)]
    if "\n" in text or "\n" in reference.text:
        changes = difflib.unified_diff(reference.text.splitlines(), text.splitlines(), n=1, lineterm="")
        return [f"[{who}]", *(change for change in changes if not change.startswith(("---", "+++")))]
    number, other = number_in(text, facts), number_in(reference.text, reference.facts)
    delta = f"{number - other:+.6g}" if number is not None and other is not None else ""
    delta = delta or array_difference(facts, reference.facts)
    return [f"[{who}] {text}" + (f"  ({delta})" if delta else "")]


def _answer(who: str, text: str) -> str:
    if "\n" in text:
        return f"[{who}]\n{_HEAD.sub(' [', text)}"
    return f"[{who}] {text}" if text else f"[{who}]"


def _outcome(label: str, kind: str, ranks: Sequence[int], text: str) -> list[str]:
    lines = []
    if kind in ("resumed", "ended", "aborted") and text:
        lines.append(_answer(fold_ranks(ranks), text))
    why = f" ({text})" if kind in _WITH_REASON and text else ""
    who = f"rank {ranks[0]} of {label}:" if len(ranks) == 1 else f"{len(ranks)} ranks of {label} ({fold_ranks(ranks)}):"
    lines.append(f"{who} {_OUTCOMES.get(kind, kind)}{why}")
    return lines
