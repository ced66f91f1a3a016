"""Terminal side: how things look. Pure text in, pure text out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshrt.debug.protocol import STOPPED, since
from meshrt.hooks import Body
from meshrt.selection import Shape, fold_coordinates, fold_ranks, group_by_value, parse_folded

__all__ = ["Answers", "clean", "count_ranks", "listing", "prompt_of", "status"]

#: A listing with more rows than this shows equal stops as one row.
FOLD_ABOVE = 32
_HEADERS = ("Actor Name", "Rank", "Coords", "Hostname", "Function", "Line No.")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Return ``text`` of a rank with everything that could drive a terminal made visible."""
    return _CONTROLS.sub(lambda match: _visible(match[0]), text.replace("\r\n", "\n"))


def _visible(character: str) -> str:
    code = ord(character)
    return {"\r": "\\r", "\x1b": "\\e"}.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def count_ranks(ranks: Sequence[int]) -> str:
    """Return ``"rank 3"`` or ``"4 ranks: 0-3"``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks: {fold_ranks(ranks)}"


def prompt_of(actor: str, rank: int, coords: Mapping[str, int]) -> str:
    """Return the prompt of an attached rank: ``"(debugee 13 hosts=3,gpus=1) "``."""
    where = ",".join(f"{label}={index}" for label, index in coords.items())
    return clean(f"({actor} {rank}{' ' + where if where else ''}) ")


def listing(rows: Sequence[Body], *, fold: bool = True, left_out: int = 0) -> str:
    """Return the table of stopped ranks; above `FOLD_ABOVE` rows, equal stops become one row."""
    from tabulate import tabulate  # start-up: only where a table is shown

    if not rows:
        return "nothing is stopped"
    cells: list[Sequence[Any]]
    if fold and len(rows) > FOLD_ABOVE:
        cells = _folded(rows)
    else:
        cells = [
            (row["actor"], row["rank"], str(row["coords"]), row["host"], _function(row), row["line"]) for row in rows
        ]
    lines = [clean(tabulate(cells, headers=_HEADERS, tablefmt="grid", disable_numparse=[2, 3, 4]))]
    if left_out:
        lines.append(f"... and {left_out} more")
    for word, members in _remarks(rows):
        lines.append(clean(f"{word}: {_by_actor(members)}"))
    return "\n".join(lines)


def _function(row: Body) -> str:
    return f"{row['module']}.{row['function']}"


def _folded(rows: Sequence[Body]) -> list[Sequence[Any]]:
    groups: dict[tuple[Any, ...], list[Body]] = {}
    for row in rows:
        groups.setdefault((row["actor"], repr(row["view"]), row["file"], row["function"], row["line"]), []).append(row)
    cells: list[Sequence[Any]] = []
    for members in groups.values():
        first, ranks = members[0], [row["rank"] for row in members]
        hosts = sorted({row["host"] for row in members})
        host = hosts[0] + (f" (+{len(hosts) - 1})" if len(hosts) > 1 else "")
        coords = fold_coordinates(ranks, Shape.from_wire(first["view"])) if first["view"] else ""
        cells.append((first["actor"], fold_ranks(ranks), coords, host, _function(first), first["line"]))
    return cells


def _remarks(rows: Iterable[Body]) -> Iterable[tuple[str, list[Body]]]:
    """What the columns do not say: stops after an exception, and ranks that are at work on a command."""
    remarks: dict[str, list[Body]] = {}
    for row in rows:
        if row["reason"] == "post-mortem":
            remarks.setdefault("after an exception (c delivers it)", []).append(row)
        if row["state"] != STOPPED:
            remarks.setdefault("at work on a command", []).append(row)
    return remarks.items()


def _by_actor(rows: Iterable[Body]) -> str:
    ranks: dict[str, list[int]] = {}
    for row in rows:
        ranks.setdefault(row["actor"], []).append(row["rank"])
    return ", ".join(f"{actor} {fold_ranks(members)}" for actor, members in ranks.items())


def status(body: Body) -> str:
    """Return one screen about everything that runs."""
    lines = []
    for mesh in body["meshes"]:
        sizes = ", ".join(f"{label}={size}" for label, size in mesh["sizes"])
        name = f"{mesh['name']} " if mesh["name"] else ""
        actors = ", ".join(mesh["actors"]) or "none"
        lines.append(f"mesh {name}{mesh['mesh']} ({sizes}): {mesh['alive']} ranks alive; actors: {actors}")
        lines += [f"  gone: {ranks} ({how})" for how, ranks in mesh["gone"].items()]
    now = time.time_ns() / 1e9
    for group in sorted(body["sessions"], key=lambda group: (group["actor"], -group["count"])):
        lines.append(
            f"{group['actor']} {group['ranks']}: {group['state']} at {group['place']} for {since(group['since'], now)}"
        )
    if not body["sessions"]:
        lines.append("nothing is stopped")
    if len(body["terminals"]) > 1:
        lines.append(f"terminals: processes {', '.join(map(str, body['terminals']))}")
    return clean("\n".join(lines))


class Answers:
    """What became of a line on many ranks, gathered from reports and shown grouped."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self.waiting: dict[str, tuple[int, ...]] = {}
        self.done = False

    def add(self, report: Body) -> None:
        """Take in one report of a cast."""
        for answer in report["answers"]:
            pairs = self._kinds.setdefault((answer["actor"], answer["kind"]), [])
            pairs += [(rank, answer["text"]) for rank in parse_folded(answer["ranks"])]
        self.waiting = {label: parse_folded(ranks) for label, ranks in report["waiting"].items()}
        self.done = bool(report["done"])

    def ranks(self, *kinds: str) -> list[int]:
        """Return the ranks (of all actors) whose answer is one of ``kinds``."""
        return [rank for (_, kind), pairs in self._kinds.items() if kind in kinds for rank, _ in pairs]

    @property
    def sent(self) -> int:
        """How many ranks got the line."""
        return len(self.ranks("answered", "resumed", "ended", "aborted", "gone")) + self.unanswered

    @property
    def unanswered(self) -> int:
        """How many ranks are waited for."""
        return sum(map(len, self.waiting.values()))

    def pending(self) -> str:
        """Return ``"12/16 answered, waiting for 3,7-9"``."""
        ranks = ", ".join(
            f"{label + ' ' if len(self.waiting) > 1 else ''}{fold_ranks(ranks)}"
            for label, ranks in self.waiting.items()
        )
        return f"{self.sent - self.unanswered}/{self.sent} answered, waiting for {ranks}"

    def text(self) -> str:
        """Return everything that came in: answers grouped by equal text, then the ranks that have none, and why."""
        several = len({label for label, _ in self._kinds}) > 1
        lines: list[str] = []
        for (label, kind), pairs in self._kinds.items():
            if kind == "answered":
                lines += [_answer(_of(label, several) + fold_ranks(ranks), text) for ranks, text in _grouped(pairs)]
        for (label, kind), pairs in self._kinds.items():
            for ranks, text in _grouped(pairs):
                if kind != "answered":
                    lines += _outcome(label, kind, list(ranks), text)
        return clean("\n".join(lines))


def _of(label: str, shown: bool) -> str:
    return f"{label} " if shown else ""


def _grouped(pairs: list[tuple[int, str]]) -> list[tuple[tuple[int, ...], str]]:
    return group_by_value((rank, text.rstrip("\n")) for rank, text in pairs)


def _answer(who: str, text: str) -> str:
    if "\n" in text:
        return f"[{who}]\n{text}"
    return f"[{who}] {text}" if text else f"[{who}]"


_OUTCOMES = {
    "resumed": "resumed",
    "ended": "went on to the end of the endpoint",
    "aborted": "aborted",
    "gone": "gone",
    "held": "not asked",
    "busy": "not asked",
    "running": "not stopped, resumed before",
    "missing": "not stopped",
}


def _outcome(label: str, kind: str, ranks: list[int], text: str) -> list[str]:
    lines = []
    if kind in ("resumed", "ended", "aborted") and text:
        lines.append(_answer(fold_ranks(ranks), text))
    why = f" ({text})" if kind in ("gone", "held", "busy") and text else ""
    who = f"rank {ranks[0]} of {label}:" if len(ranks) == 1 else f"{len(ranks)} ranks of {label} ({fold_ranks(ranks)}):"
    lines.append(f"{who} {_OUTCOMES[kind]}{why}")
    return lines
