"""Root side: the one table of breakpoints and of what to do after an exception, kept equal in every rank.

Ranks that are born later get what is there; a rank's own part is replaced as a whole, so that a message that is lost
with its rank leaves nothing half done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshrt.debug.broker.asking import gather_all, texts_of
from meshrt.debug.broker.targets import Targets
from meshrt.debug.protocol import BREAKS, HITS, POST_MORTEM
from meshrt.errors import UsageError
from meshrt.hooks import Body, RootServices, ToolClient
from meshrt.selection import fold_ranks

__all__ = ["Breaks"]

_PLACE = re.compile(r"(.+):(\d{1,9})")
_ENDPOINT = re.compile(r"(?:(.+)\.)?([^\W\d]\w*)")
#: Seconds that ranks have to confirm a change.
_CONFIRM_SECONDS = 2.0
MODES = ("on", "off", "dump", "default")


@dataclass(frozen=True, slots=True)
class _Break:
    """One breakpoint: where, on which condition, and on which ranks (None: all, those of later meshes too)."""

    id: int
    file: str
    line: int
    endpoint: str
    actor: str
    condition: str
    once: bool
    #: Base ranks by mesh id.
    ranks: Mapping[str, frozenset[int]] | None
    #: How a person wrote the place and the ranks.
    place: str
    where: str

    def holds(self, mesh_id: str, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks.get(mesh_id, ())

    def to_wire(self) -> Body:
        return {
            "id": self.id,
            "file": self.file,
            "line": self.line,
            "endpoint": self.endpoint,
            "actor": self.actor,
            "condition": self.condition,
            "once": self.once,
        }

    def described(self) -> Body:
        return {
            "id": self.id,
            "place": self.place,
            "condition": self.condition,
            "once": self.once,
            "ranks": self.where or "all",
        }


class Breaks:
    """The operations on the table. On the root's loop."""

    def __init__(self, services: RootServices, targets: Targets) -> None:
        self._services = services
        self._targets = targets
        self._breaks: dict[int, _Break] = {}
        self._number = 0
        self._modes: dict[str, str] = {}
        services.rank_born.append(self._on_born)

    async def set(self, client: ToolClient, body: Body) -> Body:
        """Add a breakpoint: ``{place, condition, once, actor, ranks}``; says what became of it, by ranks."""
        place = str(body["place"])
        actor, ranks = str(body.get("actor", "")), str(body.get("ranks", ""))
        file, line, endpoint = self._place(place, actor)
        if endpoint and not actor:
            actor = place.rpartition(".")[0]
        name = self._targets.known(actor) if actor else ""
        selected = self._targets.everywhere(actor, ranks) if ranks else []
        chosen: dict[str, frozenset[int]] = {}
        for part in selected:
            mesh_id = part.actor.mesh.mesh_id
            chosen[mesh_id] = chosen.get(mesh_id, frozenset()) | frozenset(part.ranks)
        self._number += 1
        added = _Break(
            self._number,
            file,
            line,
            endpoint,
            name,
            str(body.get("condition", "")),
            bool(body.get("once")),
            chosen if selected else None,
            place,
            ranks,
        )
        self._breaks[added.id] = added
        problems = await self._push(lambda mesh_id, rank: added.holds(mesh_id, rank))
        states, price = _states(problems, added.id)
        if states and not any(state in ("bound", "pending") for state in states):
            del self._breaks[added.id]
            reason = "; ".join(f"{state} ({ranks})" for state, ranks in states.items())
            raise UsageError(f"no breakpoint at {place}: {reason}")
        return {**added.described(), "states": states, "price": price}

    @staticmethod
    def _place(place: str, actor: str) -> tuple[str, int, str]:
        match = _PLACE.fullmatch(place)
        if match is not None:
            if int(match[2]) < 1:
                raise UsageError("lines count from 1")
            return match[1], int(match[2]), ""
        match = _ENDPOINT.fullmatch(place)
        if match is None or not (match[1] or actor):
            raise UsageError(f"{place!r} is no place; expected FILE:LINE, for instance train.py:41, or ACTOR.ENDPOINT")
        return "", 0, match[2]

    async def clear(self, client: ToolClient, body: Body) -> Body:
        """Remove the breakpoints ``ids`` (empty: all)."""
        ids = [int(number) for number in body.get("ids", ())]
        unknown = [number for number in ids if number not in self._breaks]
        if unknown:
            there = ", ".join(map(str, self._breaks)) or "none"
            raise UsageError(f"no breakpoint {', '.join(map(str, unknown))}; there are: {there}")
        removed = [self._breaks.pop(number) for number in ids or list(self._breaks)]
        if removed:
            await self._push(lambda mesh_id, rank: any(gone.holds(mesh_id, rank) for gone in removed))
        return {"breaks": [gone.described() for gone in removed]}

    async def show(self, client: ToolClient, body: Body) -> Body:
        """Return the breakpoints, with how often each was hit on which ranks."""
        if not self._breaks:
            return {"breaks": []}
        groups = await gather_all(self._services, self._everybody(), HITS, {}, _CONFIRM_SECONDS)
        rows = []
        for shown in self._breaks.values():
            hits: dict[int, list[int]] = {}
            for group in groups:
                count = group.same["hits"].get(str(shown.id), 0) if group.kind == "answered" else 0
                if count:
                    hits.setdefault(count, []).extend(group.ranks)
            rows.append({**shown.described(), "hits": {str(n): fold_ranks(r) for n, r in sorted(hits.items())}})
        return {"breaks": rows}

    async def post_mortem(self, client: ToolClient, body: Body) -> Body:
        """Say what ranks do when an endpoint raises: ``{mode, actor}``; without a mode, tell."""
        mode, actor = str(body.get("mode", "")), str(body.get("actor", ""))
        if mode:
            if mode not in MODES:
                raise UsageError(f"no mode {mode!r}; expected one of {', '.join(MODES)}")
            if actor:
                actor = self._targets.actor(actor).name
            # Said for all, it holds for all: what was said for one actor before is over.
            self._modes = {**self._modes, actor: mode} if actor else {"": mode}
            groups = await gather_all(
                self._services, self._everybody(), POST_MORTEM, {"modes": self._modes}, _CONFIRM_SECONDS
            )
            return {"modes": self._modes, "problems": texts_of(groups)}
        return {"modes": self._modes, "problems": {}}

    def _everybody(self) -> dict[str, Sequence[int]]:
        return {mesh.mesh_id: mesh.alive for mesh in self._targets.meshes() if mesh.alive}

    async def _push(self, concerned: Callable[[str, int], bool]) -> list[Body]:
        """Give every rank that is concerned its part of the table; returns the answers, with their ranks."""
        parts: dict[tuple[int, ...], dict[str, list[int]]] = {}
        for mesh in self._targets.meshes():
            for rank in mesh.alive:
                if concerned(mesh.mesh_id, rank):
                    ids = tuple(one.id for one in self._breaks.values() if one.holds(mesh.mesh_id, rank))
                    parts.setdefault(ids, {}).setdefault(mesh.mesh_id, []).append(rank)
        answers: list[Body] = []
        for ids, targets in parts.items():
            table = {"breaks": [self._breaks[number].to_wire() for number in ids]}
            groups = await gather_all(self._services, targets, BREAKS, table, _CONFIRM_SECONDS)
            answers += [{"ranks": list(group.ranks), "kind": group.kind, "same": group.same} for group in groups]
        return answers

    def _on_born(self, mesh_id: str, rank: int) -> None:
        breaks = [one.to_wire() for one in self._breaks.values() if one.holds(mesh_id, rank)]
        if breaks:
            self._services.send_rank(mesh_id, rank, BREAKS, {"breaks": breaks})
        if self._modes:
            self._services.send_rank(mesh_id, rank, POST_MORTEM, {"modes": self._modes})


def _states(answers: Sequence[Body], number: int) -> tuple[dict[str, str], str]:
    """Return what became of one breakpoint: state -> ranks; and what it costs, as text."""
    states: dict[str, list[int]] = {}
    price = ""
    for answer in answers:
        if answer["kind"] == "answered":
            state = str(answer["same"]["bound"].get(str(number), "pending"))
            price = price or str(answer["same"].get("price", ""))
        elif answer["kind"] == "silent":
            state = "pending"
        elif answer["kind"] == "gone":
            continue
        else:
            state = str(answer["same"])
        states.setdefault(state, []).extend(answer["ranks"])
    return {state: fold_ranks(ranks) for state, ranks in states.items()}, price
