"""Root side: the one table of breakpoints and of what to do after an exception, sent to every rank.

Ranks that are born later get the present table. A rank's own part is always replaced as a whole, so a message that is
lost with its rank leaves no half-done change.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshrt.debug.protocol import BREAKS, HITS, MODES, POST_MORTEM, session_of_ide
from meshrt.errors import UsageError
from meshrt.hooks.facts import Body, Group
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.asking import gather_all, texts_of, why_silent
from meshrt.program.targets import Targets
from meshrt.selection import fold_ranks
from meshrt.show.ranks import fold_meshes

__all__ = ["Breaks"]

#: Ranks by mesh id.
_Sets = dict[str, list[int]]
_PLACE = re.compile(r"(.+):(\d{1,9})")
_ENDPOINT = re.compile(r"(?:(.+)\.)?([^\W\d]\w*)")
#: Seconds that ranks have to confirm a change.
_CONFIRM_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Break:
    """One breakpoint: its place, its condition and its ranks (None: all, those of later meshes too)."""

    id: int
    file: str
    line: int
    endpoint: str
    actor: str
    condition: str
    once: bool
    #: Base ranks by mesh id.
    ranks: Mapping[str, frozenset[int]] | None
    #: The place and the ranks as a person wrote them.
    place: str
    where: str
    #: Pid of the IDE's process whose session deletes it at its end; 0: it stays until a person deletes it.
    goes_with: int
    #: That session (`session_of_ide`); "": none.
    session: str

    def holds(self, mesh_id: str, rank: int) -> bool:
        """Whether it is set on base rank ``rank`` of a mesh."""
        return self.ranks is None or rank in self.ranks.get(mesh_id, ())

    def to_wire(self) -> Body:
        """Return the record that ranks get."""
        return {
            "id": self.id,
            "file": self.file,
            "line": self.line,
            "endpoint": self.endpoint,
            "actor": self.actor,
            "condition": self.condition,
            "once": self.once,
            "goes": self.session,
        }

    def described(self) -> Body:
        """Return the record that terminals get; ``ranks``: None, or sorted base ranks by mesh id."""
        return {
            "id": self.id,
            "place": self.place,
            "condition": self.condition,
            "once": self.once,
            "selection": self.where or "all",
            "ranks": None if self.ranks is None else {mesh: sorted(ranks) for mesh, ranks in self.ranks.items()},
            "goes_with": self.goes_with,
        }


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
        self._modes: dict[tuple[str, str], str] = {}
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Body]] = set()
        services.at_birth.append(self._at_birth)
        services.rank_born.append(self._on_born)

    async def _change(self, operation: Coroutine[Any, Any, Body]) -> Body:
        return await asyncio.shield(self._begin(operation))

    def _begin(self, operation: Coroutine[Any, Any, Body]) -> asyncio.Task[Body]:
        async def in_turn() -> Body:
            async with self._changing:
                return await operation

        task = asyncio.get_running_loop().create_task(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    async def set(self, client: ToolClient, body: Body) -> Body:
        """Add a breakpoint: ``{place, condition, once, actor, ranks, goes}``.

        Args:
            body: ``goes``: the number of an IDE session, whose console is ``client``: when ``client`` closes, the
                breakpoint is deleted; 0: it stays.
        Returns:
            The breakpoint, and its states by ranks ("bound", "pending", or why it is not set there).
        Raises:
            UsageError: No such actor or place, no rank can have it, or the condition cannot be parsed.
            SelectionError: No such ranks.
        """
        place, condition = str(body["place"]), str(body.get("condition", ""))
        _check_condition(condition)
        actor, ranks = str(body.get("actor", "")), str(body.get("ranks", ""))
        file, line, endpoint = self._place(place, actor)
        goes = int(body.get("goes", 0))
        if endpoint and not actor:
            actor = place.rpartition(".")[0]
        added = _Break(
            self._number + 1,
            file,
            line,
            endpoint,
            self._targets.bare_name(actor) if actor else "",
            condition,
            bool(body.get("once")),
            self._chosen(actor, ranks),
            place,
            ranks,
            client.pid if goes else 0,
            session_of_ide(client.pid, goes),
        )
        self._number = added.id
        if added.goes_with:
            self._going.setdefault(client.id, []).append(added.id)
        return await self._change(self._set(added))

    def _chosen(self, actor: str, ranks: str) -> dict[str, frozenset[int]] | None:
        """Return the ranks to set a breakpoint on, by mesh id; None: all, those of later meshes too."""
        if not ranks and "@" not in actor:
            return None
        chosen: dict[str, frozenset[int]] = {}
        for part in self._targets.everywhere(actor, ranks):
            mesh = part.actor.mesh
            chosen[mesh.mesh_id] = chosen.get(mesh.mesh_id, frozenset()) | frozenset(part.ranks)
            if set(part.ranks) <= set(mesh.ended):
                raise UsageError(f"these ranks of {part.actor.label} are gone: {fold_ranks(part.ranks)}")
        return chosen

    async def _set(self, added: _Break) -> Body:
        self._breaks[added.id] = added
        answers = await self._push(added.holds)
        states, price, lines = self._states(answers, added)
        problems = [
            state for state in states if state not in ("bound", "pending") and not state.startswith("unanswered")
        ]
        if problems and ("bound" not in states):
            del self._breaks[added.id]
            await self._push(added.holds)
            names = self._names()
            reason = "; ".join(f"{state} ({fold_meshes(states[state], names)})" for state in problems)
            raise UsageError(f"no breakpoint at {added.place}: {reason}")
        near = {str(group.same["near"].get(str(added.id), "")) for group in answers if group.kind == "answered"}
        told = {"states": states, "price": price, "lines": lines, "near": sorted(near - {""})}
        return {**added.described(), **told, "meshes": self._names()}

    @staticmethod
    def _place(place: str, actor: str) -> tuple[str, int, str]:
        match = _PLACE.fullmatch(place)
        if match is not None:
            if int(match[2]) < 1:
                raise UsageError("lines count from 1")
            return match[1], int(match[2]), ""
        if place.endswith(".py"):
            raise UsageError(f"the line is missing; expected {place}:LINE")
        match = _ENDPOINT.fullmatch(place)
        if match is None or not (match[1] or actor):
            raise UsageError(f"{place!r} is no place; expected FILE:LINE, for instance train.py:41, or ACTOR.ENDPOINT")
        return "", 0, match[2]

    async def clear(self, client: ToolClient, body: Body) -> Body:
        """Remove the breakpoints ``ids`` (empty: all). Returns them. Raises UsageError: there is no such one."""
        ids = [int(number) for number in body.get("ids", ())]
        unknown = [number for number in ids if number not in self._breaks]
        if unknown:
            there = ", ".join(map(str, self._breaks)) or "none"
            raise UsageError(f"no breakpoint {', '.join(map(str, unknown))}; there are: {there}")
        return await self._change(self._clear(ids or list(self._breaks)))

    async def _clear(self, ids: Sequence[int]) -> Body:
        removed = [self._breaks.pop(number) for number in ids if number in self._breaks]
        if removed:
            await self._push(lambda mesh_id, rank: any(gone.holds(mesh_id, rank) for gone in removed))
        return {"breaks": [gone.described() for gone in removed]}

    def client_gone(self, client: ToolClient) -> None:
        """Delete the breakpoints that were set for the lifetime of a terminal, after its last change has run."""
        ids = self._going.pop(client.id, None)
        if ids:
            self._begin(self._clear(ids))

    async def show(self, client: ToolClient, body: Body) -> Body:
        """Return the breakpoints, each with what ranks report of it, by ranks.

        That is: how often it was hit (``hits``), other lines where it was set (``lines``), errors (``problems``), and
        the ranks that the IDE whose session it belongs to has left (``left``).
        """
        if not self._breaks:
            return {"breaks": [], "problems": {}, "meshes": self._names()}
        concerned = {
            mesh_id: [rank for rank in ranks if any(one.holds(mesh_id, rank) for one in self._breaks.values())]
            for mesh_id, ranks in self._everybody().items()
        }
        groups = await gather_all(self._services, concerned, HITS, {}, _CONFIRM_SECONDS)
        rows = []
        for shown in self._breaks.values():
            told = {word: self._said_of(shown, groups, word) for word in ("hits", "lines", "problems")}
            left = [
                (group.mesh_id, rank)
                for group in groups
                if group.kind == "answered" and shown.id in group.same["left"]
                for rank in group.ranks
            ]
            rows.append({**shown.described(), **told, "left": _by_mesh(left)})
        return {"breaks": rows, "problems": _all_by_mesh(texts_of(groups)), "meshes": self._names()}

    def _said_of(self, shown: _Break, groups: Sequence[Group], word: str) -> dict[str, _Sets]:
        """Return what ranks report of a breakpoint under ``word``, sorted, each with the ranks that report it."""
        said: dict[Any, list[tuple[str, int]]] = {}
        for group in groups:
            found = group.same.get(word, {}).get(str(shown.id)) if group.kind == "answered" else None
            if found:
                said.setdefault(found, []).extend((group.mesh_id, rank) for rank in group.ranks)
        return _all_by_mesh({str(each): said[each] for each in sorted(said)})

    async def post_mortem(self, client: ToolClient, body: Body) -> Body:
        """Set what ranks do when an endpoint raises: ``{mode, actor}``; without a mode, only return it.

        Returns:
            ``modes`` that were set here by actor, ``own``: the modes that the program has set, and ``problems``.
        Raises:
            UsageError: No such mode or actor.
        """
        mode, actor = str(body.get("mode", "")), str(body.get("actor", ""))
        if mode:
            if mode not in MODES:
                raise UsageError(f"no mode {mode!r}; expected one of {', '.join(MODES)}")
            if not actor:
                # A mode for all actors replaces those that were set for one actor before.
                self._modes = {("", ""): mode}
            else:
                name = self._targets.bare_name(actor)
                mesh_id = self._targets.actor(actor).mesh.mesh_id if "@" in actor else ""
                self._modes[mesh_id, name] = mode
        return await self._change(self._tell_modes())

    async def _tell_modes(self) -> Body:
        gathers = [
            gather_all(
                self._services, {mesh_id: ranks}, POST_MORTEM, {"modes": self._modes_of(mesh_id)}, _CONFIRM_SECONDS
            )
            for mesh_id, ranks in self._everybody().items()
        ]
        groups = [group for answers in await asyncio.gather(*gathers) for group in answers]
        own: dict[str, list[tuple[str, int]]] = {}
        for group in groups:
            if group.kind == "answered":
                own.setdefault(str(group.same["own"]), []).extend((group.mesh_id, rank) for rank in group.ranks)
        return {
            "modes": self._shown_modes(),
            "own": _all_by_mesh(own),
            "problems": _all_by_mesh(texts_of(groups)),
            "meshes": self._names(),
        }

    def _modes_of(self, mesh_id: str) -> dict[str, str]:
        return {actor: mode for (mesh, actor), mode in list(self._modes.items()) if mesh in ("", mesh_id)}

    def _shown_modes(self) -> dict[str, str]:
        return {actor + (f"@{mesh}" if mesh else ""): mode for (mesh, actor), mode in self._modes.items()}

    def _everybody(self) -> dict[str, Sequence[int]]:
        return {mesh.mesh_id: mesh.alive for mesh in self._targets.meshes() if mesh.alive}

    async def _push(self, concerned: Callable[[str, int], bool]) -> list[Group]:
        """Send each rank for which ``concerned`` is true its part of the table. Returns the answers by ranks."""
        parts: dict[tuple[int, ...], dict[str, list[int]]] = {}
        for mesh in self._targets.meshes():
            for rank in mesh.alive:
                if concerned(mesh.mesh_id, rank):
                    ids = tuple(one.id for one in self._breaks.values() if one.holds(mesh.mesh_id, rank))
                    parts.setdefault(ids, {}).setdefault(mesh.mesh_id, []).append(rank)
        gathers = [
            gather_all(
                self._services,
                targets,
                BREAKS,
                {"breaks": [self._breaks[number].to_wire() for number in ids]},
                _CONFIRM_SECONDS,
            )
            for ids, targets in parts.items()
        ]
        return [group for answers in await asyncio.gather(*gathers) for group in answers]

    def _at_birth(self) -> list[tuple[str, Body]]:
        """Return the requests that a new rank serves before any call: what is set for all meshes. Any thread."""
        breaks = [one.to_wire() for one in list(self._breaks.values()) if one.ranks is None]
        modes = self._modes_of("")
        operations: list[tuple[str, Body]] = [(BREAKS, {"breaks": breaks})] if breaks else []
        return [*operations, (POST_MORTEM, {"modes": modes})] if modes else operations

    def _on_born(self, mesh_id: str, rank: int) -> None:
        breaks = [one.to_wire() for one in self._breaks.values() if one.holds(mesh_id, rank)]
        if breaks:
            self._services.send_rank(mesh_id, rank, BREAKS, {"breaks": breaks})
        modes = self._modes_of(mesh_id)
        if modes:
            self._services.send_rank(mesh_id, rank, POST_MORTEM, {"modes": modes})

    def _states(self, groups: Sequence[Group], added: _Break) -> tuple[dict[str, _Sets], str, dict[str, _Sets]]:
        """Return the states of a breakpoint (state -> ranks), a text about its cost, and other lines it is set at."""
        states: dict[str, list[tuple[str, int]]] = {}
        lines: dict[str, list[tuple[str, int]]] = {}
        price = ""
        for group in groups:
            ranks = [(group.mesh_id, rank) for rank in group.ranks]
            if group.kind == "answered":
                state = str(group.same["bound"].get(str(added.id), "pending"))
                price = price or str(group.same.get("price", ""))
                line = group.same.get("lines", {}).get(str(added.id), 0)
                if added.line and line not in (0, added.line):
                    lines.setdefault(str(line), []).extend(ranks)
            elif group.kind == "silent":
                state = f"unanswered: {why_silent(group.same)}"
            elif group.kind == "gone":
                continue
            else:
                state = str(group.same)
            states.setdefault(state, []).extend(ranks)
        return _all_by_mesh(states), price, _all_by_mesh(lines)

    def _names(self) -> dict[str, str]:
        """Return the names of all meshes, by mesh id: texts name the mesh where there are several."""
        return {mesh.mesh_id: mesh.name or mesh.mesh_id for mesh in self._targets.meshes()}


def _all_by_mesh(table: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, _Sets]:
    return {word: _by_mesh(ranks) for word, ranks in table.items()}


def _by_mesh(ranks: Sequence[tuple[str, int]]) -> _Sets:
    found: dict[str, set[int]] = {}
    for mesh_id, rank in ranks:
        found.setdefault(mesh_id, set()).add(rank)
    return {mesh_id: sorted(members) for mesh_id, members in found.items()}


def _check_condition(text: str) -> None:
    text = text.strip()
    if not text:
        return
    try:
        ast.parse(text + "\n", mode="eval")  # compiling would warn of some expressions, on the program's terminal
    except SyntaxError as error:
        caret = " " * max(0, (error.offset or 1) - 1) + "^"
        raise UsageError(f"the condition is no expression: {error.msg}\n  {text}\n  {caret}") from None
    except (ValueError, MemoryError, RecursionError) as error:  # the last two: nested too deeply
        raise UsageError(f"the condition is no expression that can be read: {error}") from None
