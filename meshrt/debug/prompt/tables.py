"""Terminal side: listings. Plain data in, text out."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from meshrt.debug.operations import BreakRow, BreakSet, BreakShown, RankSets
from meshrt.escapes import escaped
from meshrt.inspect.operations import ProgramStatus, RankRow
from meshrt.inspect.waittext import unread_lines, wait_lines
from meshrt.program.groups import by_key
from meshrt.program.places import Place
from meshrt.program.words import DEAD, POST_MORTEM, STOPPED, WORST_FIRST
from meshrt.selection import Shape, counted, fold_coordinates, fold_ranks
from meshrt.show.ranks import fold_meshes
from meshrt.show.table import Room, table
from meshrt.show.text import since

__all__ = ["breakpoints", "by_actor", "left_behind", "listing", "problems", "status"]

#: A listing with more rows than this shows equal stops as one row.
FOLD_ABOVE = 32
#: Places of one actor in one state, and ways of ending of a mesh, that `status` shows at most: it is one screen.
_MOST_GROUPS = 6
#: Two durations are shown as one if the shorter is more than this part of the longer.
_ALIKE = 0.8
_HEADERS = ("Actor Name", "Rank", "Coords", "Hostname", "Function", "Line No.")
_NUMBERS = ("Rank", "Line No.", "PID")
#: Columns that are left out on a narrow terminal, the least important first; before that, columns wrapped at a width.
_DROPS = ("Hostname", "Coords", "Children", "PID", "RSS", "Since")
_WRAPS = {"Function": 20, "Place": 20, "State": 14, "Actor Name": 12}
#: Characters of a note that is shown beside the state; longer ones are below the table.
_NOTE = 24
#: Children of a rank whose pids are shown.
_CHILDREN = 4
_STATE_HEADERS = ("Actor Name", "Rank", "Coords", "Hostname", "State", "Since", "Place")


def listing(
    rows: Sequence[RankRow], *, state: str = "stopped", fold: bool = True, left_out: int = 0, width: int | None = None
) -> str:
    """Return the table of ranks.

    Args:
        state: The state that was asked for; "all": any.
        fold: Above `FOLD_ABOVE` rows, show equal ones as one row.
        left_out: Number of rows that are not in ``rows``.
        width: Characters of a line; None: no limit.
    """
    if not rows:
        return "nothing is stopped" if state == "stopped" else f"no rank is {state}" if state != "all" else "no ranks"
    fold = fold and len(rows) > FOLD_ABOVE
    stops = state == "stopped"
    groups = _groups(rows, stops) if fold else [[row] for row in rows]
    parents = any(row.children for row in rows)
    process = ("PID", "RSS", *("Children",) * parents) if rows[0].rss is not None else ()
    headers = (*(_HEADERS if stops else _STATE_HEADERS), *process)
    cells = [_cells(members, fold, stops) + (_children(members),) * parents for members in groups]
    right = [head for head in _NUMBERS if head != "Rank" or not fold]
    lines = table(headers, cells, Room(width, _DROPS, _WRAPS), right=right, grid=True)
    if left_out:
        lines.append(f"... and {left_out} more")
    for word, members in _remarks(rows) if stops else _long_notes(rows):
        lines.append(escaped(f"{word}: {by_actor(members)}"))
    return "\n".join(lines)


def _groups(rows: Sequence[RankRow], stops: bool) -> list[list[RankRow]]:
    groups: dict[tuple[object, ...], list[RankRow]] = {}
    for row in rows:
        key = (row.actor, repr(row.view), row.file, row.function, row.line)
        groups.setdefault(key if stops else (*key, row.state, row.note), []).append(row)
    return list(groups.values())


def _cells(members: Sequence[RankRow], folded: bool, stops: bool) -> tuple[object, ...]:
    first, ranks = members[0], [row.rank for row in members]
    head: tuple[object, ...]
    if folded:
        hosts = sorted({row.host for row in members})
        host = hosts[0] + (f" (+{len(hosts) - 1})" if len(hosts) > 1 else "")
        head = (first.actor, fold_ranks(ranks), fold_coordinates(ranks, Shape.from_wire(first.view)), host)
    else:
        head = (first.actor, first.rank, str(first.coords), first.host)
    if stops:
        return (*head, f"{first.module}.{first.function}", first.line)
    note = f" ({first.note})" if 0 < len(first.note) <= _NOTE else ""
    place = str(Place(first.file, first.line, first.function)) if first.line else ""
    began = [row.since for row in members]
    lasts = _lasting(min(began), max(began), time.time_ns() / 1e9) if min(began) else ""
    process = _process(members) if first.rss is not None else ()
    return (*head, first.state + note, lasts, place, *process)


def _process(members: Sequence[RankRow]) -> tuple[str, str]:
    """Return the pid, if it is one process, and the resident memory, with unit; "" where it is not known."""
    used = [row.rss / (1 << 20) for row in members if row.rss]
    if not used:
        return "", ""
    least, most = f"{min(used):.0f}", f"{max(used):.0f}"
    return str(members[0].pid) if len(members) == 1 else "", f"{least if least == most else f'{least}-{most}'} MiB"


def _children(members: Sequence[RankRow]) -> str:
    """Return the pids of what one process has started, a few of them, or how many the processes have."""
    found = [pid for row in members for pid in row.children]
    if len(members) > 1:
        return str(len(found) or "")
    more = f" +{len(found) - _CHILDREN}" if len(found) > _CHILDREN else ""
    return " ".join(map(str, found[:_CHILDREN])) + more


def _remarks(rows: Iterable[RankRow]) -> Iterable[tuple[str, list[RankRow]]]:
    """Return remarks on rows: stops after an exception, attached terminals, commands at work, errors of conditions."""
    remarks: dict[str, list[RankRow]] = {}
    for row in rows:
        if row.state == POST_MORTEM:
            remarks.setdefault("stopped on an exception; `c` passes the exception to the caller", []).append(row)
        if row.holder:
            remarks.setdefault(f"held by the terminal of process {row.holder}", []).append(row)
        if row.note:
            remarks.setdefault(row.note, []).append(row)
        if row.breakpoint_error:
            remarks.setdefault(row.breakpoint_error, []).append(row)
    return remarks.items()


def _long_notes(rows: Iterable[RankRow]) -> Iterable[tuple[str, list[RankRow]]]:
    """Return the notes that are too long for the column of the state: each once, below the table."""
    return by_key((f"{row.state} ({row.note})", row) for row in rows if len(row.note) > _NOTE).items()


def by_actor(rows: Iterable[RankRow]) -> str:
    """Return the ranks of rows, folded, by actor: ``"debugee 0-3, other 5"``."""
    ranks = by_key((row.actor, row.rank) for row in rows)
    return ", ".join(f"{actor} {fold_ranks(members)}" for actor, members in ranks.items())


def status(found: ProgramStatus) -> str:
    """Return the state of the whole program, on one screen."""
    lines = []
    now = time.time_ns() / 1e9
    for mesh in found.meshes:
        sizes = ", ".join(f"{label}={size}" for label, size in mesh.sizes)
        name = f"{mesh.name} " if mesh.name else ""
        actors = ", ".join(mesh.actors) or "none"
        lines.append(f"mesh {name}{mesh.mesh} ({sizes or 'one rank'}): {counted(mesh.alive)} alive; actors: {actors}")
        ends = list(mesh.gone.items())
        lines += [f"  ended: {fold_ranks(ranks)} ({how})" for how, ranks in ends[:_MOST_GROUPS]]
        if len(ends) > _MOST_GROUPS:
            lines.append(f"  ended for {counted(len(ends) - _MOST_GROUPS, 'other reason')}; `list dead` shows all")
    groups = [group for group in found.groups if group.state != DEAD]
    groups.sort(key=lambda group: (group.actor, WORST_FIRST.index(group.state), -group.count))
    for (actor, state), members in groupby(groups, key=lambda group: (group.actor, group.state)):
        shown = list(members)
        for group in shown[:_MOST_GROUPS]:
            place = f" at {group.place}" if group.place else ""
            note = f" ({group.note})" if group.note else ""
            began = f" for {_lasting(group.since, group.latest, now)}" if group.since else ""
            lines.append(f"{actor} {fold_ranks(group.ranks)}: {state}{place}{began}{note}")
        rest = shown[_MOST_GROUPS:]
        if rest:
            ranks = sum(group.count for group in rest)
            places = counted(len(rest), "place")
            lines.append(f"{actor}: {ranks} more {state}, at {places}; `list {state} {actor}` shows all")
    if not found.meshes:
        lines.append("no mesh is running")
    elif not any(group.state in (STOPPED, POST_MORTEM) for group in groups):
        lines.append("nothing is stopped")
    lines += [*unread_lines(found), *wait_lines(found)]
    if len(found.terminals) > 1:
        named = [f"{pid} (this one)" if pid == found.own else str(pid) for pid in found.terminals]
        lines.append(f"terminals: processes {', '.join(named)}")
    return escaped("\n".join(lines))


def _lasting(first: float, last: float, now: float) -> str:
    """Return for how long ranks have been in a state: ``"2 min"``, or ``"11 s to 2 min"`` if they differ much.

    Args:
        first, last: When the first and the last rank came to the state (epoch seconds).
    """
    longest, shortest = since(first, now), since(last, now)
    alike = longest == shortest or now - last > _ALIKE * (now - first)
    return longest if alike else f"{shortest} to {longest}"


def breakpoints(rows: Sequence[BreakRow], meshes: Mapping[str, str]) -> str:
    """Return the table of breakpoints, as the broker describes them.

    Args:
        meshes: Names of all meshes, by mesh id.
    """
    if not rows:
        return "no breakpoints are set"
    lines = []
    for row in rows:
        shown = row if isinstance(row, BreakShown) else None
        condition = f", {row.condition}" if row.condition else ""
        once = " once" if row.once else ""
        goes = f" until the IDE of process {row.goes_with} detaches" if row.goes_with else ""
        goes += f", which detached from [{fold_meshes(shown.left, meshes)}]" if shown is not None and shown.left else ""
        hits = "; ".join(
            f"[{fold_meshes(ranks, meshes)}] {'once' if int(count) == 1 else f'{count} times'}"
            for count, ranks in (shown.hits.items() if shown is not None else ())
        )
        hit = f": hit {hits}" if hits else ""
        moved = _moved(row.lines, meshes) if isinstance(row, BreakShown | BreakSet) else ""
        waits = ", pending: that code is not loaded yet" if shown is not None and shown.pending else ""
        lines.append(f"{row.id}  {row.place}{moved}{condition} on {row.selection}{once}{goes}{waits}{hit}")
        lines += problems(shown.problems, meshes, "   ") if shown is not None else []
    return escaped("\n".join(lines))


def left_behind(breaks: Iterable[BreakRow], own: Collection[int], stopped: Sequence[RankRow]) -> str:
    """Return one line about what a failed script of commands leaves in the program; "" if that is nothing.

    Args:
        breaks: The breakpoints that there are.
        own: The ids of those that the script has set; some may be deleted already.
        stopped: The stopped ranks.
    """
    left = [f"breakpoint {row.id} at {row.place} (clear {row.id})" for row in breaks if row.id in own]
    left += [f"stopped ranks: {by_actor(stopped)} (continue)"] if stopped else []
    return escaped(f"left behind: {'; '.join(left)}") if left else ""


def _moved(lines: Mapping[str, RankSets], meshes: Mapping[str, str]) -> str:
    """Return at which other lines a breakpoint was set; "" if at its own."""
    if not lines:
        return ""
    if len(lines) == 1:
        places = f"line {next(iter(lines))}"
    else:
        places = ", ".join(f"line {line} on {fold_meshes(ranks, meshes)}" for line, ranks in lines.items())
    return f" (no code at that line: it is set at {places})"


def problems(found: Mapping[str, RankSets], meshes: Mapping[str, str], indent: str = "") -> list[str]:
    """Return a line for each reason why ranks have not told of their breakpoints, or of their mode."""
    return [f"{indent}[{fold_meshes(ranks, meshes)}] {text}" for text, ranks in found.items()]
