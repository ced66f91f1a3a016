"""Root side: the one table of breakpoints and of what to do after an exception, sent to every rank.

Ranks that are born later get the present table. A rank's own part is always replaced as a whole, so a message that is
lost with its rank leaves no half-done change.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import asdict

from meshrt.debug.operations import (
    Break,
    BreakRow,
    BreakSet,
    BreakShown,
    BreaksShown,
    Clear,
    Cleared,
    Modes,
    PostMortemModes,
    RankSets,
)
from meshrt.debug.operations import Breaks as ShowBreaks
from meshrt.debug.protocol import MODES, Mode, session_of_ide
from meshrt.debug.rank_operations import BreakHit, BreakHits, BreakSpec, BreakStates, ReadHits, SetBreaks, SetModes
from meshrt.errors import UsageError
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.operations import GroupedOperation
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.program.asking import gather_all
from meshrt.program.groups import by_key, rank_sets
from meshrt.program.targets import Targets
from meshrt.program.words import silence, why_unanswered
from meshrt.selection import fold_ranks
from meshrt.show.ranks import fold_meshes
from meshrt.wire.control import Address

__all__ = ["Breaks"]

A = TypeVar("A")
S = TypeVar("S")
P = TypeVar("P")

_PLACE = re.compile(r"(.+):(\d{1,9})")
_METHOD = re.compile(r"(?:(.+)\.)?([^\W\d]\w*)")
#: Seconds that ranks have to confirm a change.
_CONFIRM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Break:
    """One breakpoint: what ranks get, what terminals see, and its base ranks by mesh id.

    ``ranks`` is None: all, those of later meshes too.
    """

    spec: BreakSpec
    row: BreakRow
    ranks: Mapping[str, frozenset[int]] | None

    def holds(self, mesh_id: str, rank: int) -> bool:
        """Whether it is set on base rank ``rank`` of a mesh."""
        return self.ranks is None or rank in self.ranks.get(mesh_id, ())


class Breaks:
    """The operations on the table. On the root's loop.

    Changes of the table run one after another. Each runs to its end, also if the terminal that asked for it closes.
    """

    def __init__(self, services: RootServices, targets: Targets) -> None:
        self._services = services
        self._targets = targets
        self._breaks: dict[int, _Break] = {}
        self._number = 0
        #: Numbers of the breakpoints to delete when a terminal closes, by its id; some may be deleted already.
        self._going: dict[int, list[int]] = {}
        #: By mesh id ("": every mesh) and actor ("": every actor).
        self._modes: dict[tuple[str, str], Mode] = {}
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[object]] = set()
        services.at_birth.append(self._at_birth)
        services.rank_born.append(self._on_born)

    async def _change(self, operation: Coroutine[object, object, A]) -> A:
        return await asyncio.shield(self._begin(operation))

    def _begin(self, operation: Coroutine[object, object, A]) -> asyncio.Task[A]:
        async def in_turn() -> A:
            async with self._changing:
                return await operation

        task = asyncio.get_running_loop().create_task(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    async def set(self, client: ToolClient, asked: Break) -> BreakSet:
        """Add a breakpoint.

        Raises:
            UsageError: No such actor or place, no rank can have it, or the condition cannot be parsed.
            SelectionError: No such ranks.
        """
        _check_condition(asked.condition)
        actor = asked.actor
        file, line, method = self._place(asked.place, actor)
        if method and not actor:
            actor = asked.place.rpartition(".")[0]
        ranks = self._chosen(actor, asked.ranks)
        number = self._number + 1
        name = self._targets.bare_name(actor) if actor else ""
        session = session_of_ide(client.pid, asked.goes)
        spec = BreakSpec(number, file, line, method, name, asked.condition, asked.once, session)
        shown = None if ranks is None else {mesh: sorted(members) for mesh, members in ranks.items()}
        goes_with = client.pid if asked.goes else 0
        place = f"{actor}.{method}" if method else asked.place
        row = BreakRow(number, place, asked.condition, asked.once, asked.ranks or "all", shown, goes_with)
        self._number = number
        if goes_with:
            self._going.setdefault(client.id, []).append(number)
        return await self._change(self._set(_Break(spec, row, ranks)))

    def _chosen(self, actor: str, ranks: str) -> dict[str, frozenset[int]] | None:
        """Return the ranks to set a breakpoint on, by mesh id; None: all, those of later meshes too."""
        if not ranks and "@" not in actor:
            return None
        chosen: dict[str, frozenset[int]] = {}
        for part in self._targets.everywhere(actor, ranks, bare=True):
            mesh = part.actor.mesh
            chosen[mesh.mesh_id] = chosen.get(mesh.mesh_id, frozenset()) | frozenset(part.ranks)
            if set(part.ranks) <= set(mesh.ended):
                raise UsageError(f"these ranks of {part.actor.label} have ended: {fold_ranks(part.ranks)}")
        return chosen

    async def _set(self, added: _Break) -> BreakSet:
        number = added.spec.id
        self._breaks[number] = added
        answers = await self._push(added.holds)
        states: dict[str, list[Address]] = {}
        lines: dict[str, list[Address]] = {}
        near: set[str] = set()
        price = ""
        # Where its actor does not live, it waits for nothing that is worth a line.
        homes = {
            (actor.mesh.mesh_id, rank)
            for actor in self._targets.actors()
            if actor.name == added.spec.actor
            for rank in actor.views
        }
        for group in answers:
            ranks = _addresses(group)
            if isinstance(group, Answered):
                price = price or group.same.price
                found = next((each for each in group.same.breaks if each.id == number), None)
                state = found.state if found else "pending"
                concerned = [rank for rank in ranks if state != "pending" or rank in homes] if homes else ranks
                if concerned:
                    states.setdefault(state, []).extend(concerned)
                if found and found.line:
                    lines.setdefault(str(found.line), []).extend(ranks)
                if found and found.near:
                    near.add(found.near)
            elif group.kind == "silent":
                states.setdefault(f"unanswered: {silence(group.state)}", []).extend(ranks)
            elif group.kind == "refused":
                states.setdefault(group.why, []).extend(ranks)
        problems = [
            state for state in states if state not in ("bound", "pending") and not state.startswith("unanswered")
        ]
        names = self._names()
        if problems and ("bound" not in states):
            del self._breaks[number]
            await self._push(added.holds)
            self._free(number)
            reason = "; ".join(f"{state} ({fold_meshes(rank_sets(states[state]), names)})" for state in problems)
            raise UsageError(f"no breakpoint at {added.row.place}: {reason}")
        row = asdict(added.row)
        return BreakSet(
            **row, states=_all_by_mesh(states), price=price, lines=_all_by_mesh(lines), near=sorted(near), meshes=names
        )

    def _free(self, number: int) -> None:
        """A breakpoint was refused: the next one has its number, unless a later number was given meanwhile."""
        if self._number == number:
            self._number -= 1
        for ids in self._going.values():
            if number in ids:
                ids.remove(number)

    @staticmethod
    def _place(place: str, actor: str) -> tuple[str, int, str]:
        match = _PLACE.fullmatch(place)
        if match is not None:
            if int(match[2]) < 1:
                raise UsageError("line numbers start at 1")
            return match[1], int(match[2]), ""
        if place.endswith(".py"):
            raise UsageError(f"the line is missing; expected {place}:LINE")
        match = _METHOD.fullmatch(place)
        if match is None or not (match[1] or actor):
            raise UsageError(
                f"{place!r} is not a valid place; expected FILE:LINE, for instance train.py:41, or ACTOR.METHOD"
            )
        return "", 0, match[2]

    async def clear(self, client: ToolClient, asked: Clear) -> Cleared:
        """Remove breakpoints. Raises UsageError: there is no such one."""
        unknown = [number for number in asked.ids if number not in self._breaks]
        if unknown:
            there = ", ".join(map(str, self._breaks)) or "none"
            raise UsageError(f"no breakpoint {', '.join(map(str, unknown))}; there are: {there}")
        return await self._change(self._clear(asked.ids or list(self._breaks)))

    async def _clear(self, ids: Sequence[int]) -> Cleared:
        removed = [self._breaks.pop(number) for number in ids if number in self._breaks]
        if removed:
            await self._push(lambda mesh_id, rank: any(gone.holds(mesh_id, rank) for gone in removed))
        return Cleared([gone.row for gone in removed])

    def client_gone(self, client: ToolClient) -> None:
        """Delete the breakpoints that were set for the lifetime of a terminal, after its last change has run."""
        ids = self._going.pop(client.id, None)
        if ids:
            self._begin(self._clear(ids))

    async def show(self, client: ToolClient, asked: ShowBreaks) -> BreaksShown:
        """Return the breakpoints, each with what ranks report of it."""
        concerned = {
            mesh_id: [rank for rank in ranks if any(one.holds(mesh_id, rank) for one in self._breaks.values())]
            for mesh_id, ranks in (self._everybody() if self._breaks else {}).items()
        }
        groups = await gather_all(self._services, concerned, ReadHits(), _CONFIRM_SECONDS)
        rows = [self._shown(one, groups) for one in self._breaks.values()]
        return BreaksShown(rows, _refusals(groups), self._names())

    @staticmethod
    def _shown(one: _Break, groups: Iterable[Answered[BreakHits, None] | Unanswered]) -> BreakShown:
        told = [
            (each, _addresses(group))
            for group in groups
            if isinstance(group, Answered)
            for each in group.same.breaks
            if each.id == one.spec.id
        ]

        def said(what: Callable[[BreakHit], int | str]) -> Mapping[str, RankSets]:
            by_value = by_key((what(each), rank) for each, ranks in told if what(each) for rank in ranks)
            return _all_by_mesh({str(value): by_value[value] for value in sorted(by_value)})

        return BreakShown(
            **asdict(one.row),
            hits=said(lambda each: each.hits),
            lines=said(lambda each: each.line),
            problems=said(lambda each: each.problem),
            left=rank_sets([address for each, ranks in told if each.left for address in ranks]),
            pending=rank_sets([address for _, ranks in told for address in ranks])
            if all(each.pending for each, _ in told)
            else {},
        )

    async def post_mortem(self, client: ToolClient, asked: PostMortemModes) -> Modes:
        """Set what ranks do when an endpoint raises; without a mode, only return it.

        Raises:
            UsageError: No such mode or actor.
        """
        if asked.mode:
            if asked.mode not in MODES:
                raise UsageError(f"no mode {asked.mode!r}; expected one of {', '.join(MODES)}")
            if not asked.actor:
                # A mode for all actors replaces those that were set for one actor before.
                self._modes = {("", ""): asked.mode}
            else:
                name = self._targets.bare_name(asked.actor)
                mesh_id = self._targets.actor(asked.actor).mesh.mesh_id if "@" in asked.actor else ""
                self._modes[mesh_id, name] = asked.mode
        return await self._change(self._tell_modes())

    async def _tell_modes(self) -> Modes:
        groups = await self._ask(
            (SetModes(self._modes_of(mesh_id)), {mesh_id: ranks}) for mesh_id, ranks in self._everybody().items()
        )
        told = (group for group in groups if isinstance(group, Answered))
        own: dict[str, list[Address]] = by_key((group.same.own, rank) for group in told for rank in _addresses(group))
        modes = {actor + (f"@{mesh}" if mesh else ""): mode for (mesh, actor), mode in self._modes.items()}
        return Modes(modes, _all_by_mesh(own), _refusals(groups), self._names())

    async def _ask(
        self, questions: Iterable[tuple[GroupedOperation[S, None], Mapping[str, Sequence[int]]]]
    ) -> list[Answered[S, None] | Unanswered]:
        """Put each question to its ranks, all at once. Returns all answers."""
        gathers = [gather_all(self._services, ranks, asked, _CONFIRM_SECONDS) for asked, ranks in questions]
        return [group for answers in await asyncio.gather(*gathers) for group in answers]

    def _modes_of(self, mesh_id: str) -> dict[str, Mode]:
        return {actor: mode for (mesh, actor), mode in list(self._modes.items()) if mesh in ("", mesh_id)}

    def _everybody(self) -> dict[str, Sequence[int]]:
        return {mesh.mesh_id: mesh.alive for mesh in self._targets.meshes() if mesh.alive}

    async def _push(self, concerned: Callable[[str, int], bool]) -> list[Answered[BreakStates, None] | Unanswered]:
        """Send each rank for which ``concerned`` is true its part of the table. Returns the answers by ranks."""
        parts: dict[tuple[BreakSpec, ...], dict[str, list[int]]] = {}
        for mesh in self._targets.meshes():
            for rank in mesh.alive:
                if concerned(mesh.mesh_id, rank):
                    part = tuple(self._part(mesh.mesh_id, rank))
                    parts.setdefault(part, {}).setdefault(mesh.mesh_id, []).append(rank)
        return await self._ask((SetBreaks(part), targets) for part, targets in parts.items())

    def _part(self, mesh_id: str, rank: int) -> list[BreakSpec]:
        return [one.spec for one in self._breaks.values() if one.holds(mesh_id, rank)]

    def _at_birth(self) -> list[SetBreaks | SetModes]:
        """Return the requests that a new rank serves before any call: what is set for all meshes. Any thread."""
        breaks = [one.spec for one in list(self._breaks.values()) if one.ranks is None]
        modes = self._modes_of("")
        first: list[SetBreaks | SetModes] = [SetBreaks(breaks)] if breaks else []
        return [*first, SetModes(modes)] if modes else first

    def _on_born(self, mesh_id: str, rank: int) -> None:
        breaks = self._part(mesh_id, rank)
        if breaks:
            self._services.tell_rank(mesh_id, rank, SetBreaks(breaks))
        modes = self._modes_of(mesh_id)
        if modes:
            self._services.tell_rank(mesh_id, rank, SetModes(modes))

    def _names(self) -> dict[str, str]:
        """Return the names of all meshes, by mesh id: texts name the mesh where there are several."""
        return {mesh.mesh_id: mesh.name or mesh.mesh_id for mesh in self._targets.meshes()}


def _addresses(group: Answered[S, P] | Unanswered) -> list[Address]:
    return [(group.mesh_id, rank) for rank in group.ranks]


def _refusals(groups: Iterable[Answered[S, P] | Unanswered]) -> Mapping[str, RankSets]:
    """Return why ranks have not answered, with these ranks."""
    silent = (group for group in groups if isinstance(group, Unanswered))
    return _all_by_mesh(by_key((why_unanswered(group), rank) for group in silent for rank in _addresses(group)))


def _all_by_mesh(table: Mapping[str, Sequence[Address]]) -> dict[str, RankSets]:
    return {word: rank_sets(ranks) for word, ranks in table.items()}


def _check_condition(text: str) -> None:
    text = text.strip()
    if not text:
        return
    try:
        ast.parse(text + "\n", mode="eval")  # compiling would warn of some expressions, on the program's terminal
    except SyntaxError as error:
        caret = " " * max(0, (error.offset or 1) - 1) + "^"
        raise UsageError(f"invalid condition: {error.msg}\n  {text}\n  {caret}") from None
    except (ValueError, MemoryError, RecursionError) as error:  # the last two: nested too deeply
        raise UsageError(f"invalid condition: {error}") from None
