"""The root's side of recording, on its loop: forwards requests of a terminal to ranks, and keeps no answers."""

from __future__ import annotations

from dataclasses import dataclass

from meshrt.errors import UsageError
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.operations import GroupedOperation, Nothing
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.program.asking import gather_all
from meshrt.program.program import program_of
from meshrt.program.words import why_unanswered
from meshrt.timeline.operations import (
    Begin,
    BeginOnRank,
    Begun,
    DropOnRank,
    End,
    EndOnRank,
    Missing,
    Part,
    Parts,
    Ranks,
    RanksOfMesh,
    RanksToAsk,
    Script,
    Take,
    TakeOnRank,
)
from meshrt.timeline.script import ScriptTimeline

__all__ = ["Timelines", "load"]

#: Seconds after which a rank counts as one that does not answer.
_SECONDS = 2.0


@dataclass(slots=True)
class _Recording:
    """A recording of a terminal.

    Attributes:
        ranks: By mesh id; None: all.
        before: Those that had ended before it began.
        script: The calls that the script waits for.
    """

    client: int
    ranks: dict[str, tuple[int, ...]] | None
    before: frozenset[tuple[str, int]]
    script: ScriptTimeline
    ended: bool = False

    def has(self, mesh_id: str, rank: int) -> bool:
        """Whether it is of this rank, too."""
        return self.ranks is None or rank in self.ranks.get(mesh_id, ())


class Timelines:
    """The recordings under way."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._recordings: dict[str, _Recording] = {}
        self._count = 0

    async def begin(self, client: ToolClient, begin: Begin) -> Begun:
        """Begin to record."""
        ranks = self._chosen(begin.ranks) if begin.ranks.strip() else None
        before = frozenset((mesh.mesh_id, rank) for mesh in self._services.meshes() for rank in mesh.ended)
        self._count += 1
        name = f"{client.id}.{self._count}"
        recording = self._recordings[name] = _Recording(
            client.id, ranks, before, ScriptTimeline(self._services.pending_calls())
        )
        try:
            without = await self._ask(recording, BeginOnRank(name))
        except BaseException:  # no terminal knows its name and could end it
            if name in self._recordings:
                self._drop(name)
            raise
        if name not in self._recordings:
            raise UsageError("the recording was dropped before it had begun")
        return Begun(name, without)

    def _chosen(self, text: str) -> dict[str, tuple[int, ...]]:
        """Return the ranks of a selection, by mesh id; a state selects the ranks that are in it now."""
        found = program_of(self._services).targets.by_mesh("", text)
        return {mesh_id: tuple(ranks) for mesh_id, ranks in found.items()}

    def _alive(self, recording: _Recording) -> dict[str, list[int]]:
        alive = {
            mesh.mesh_id: [rank for rank in mesh.alive if rank in mesh.pids and recording.has(mesh.mesh_id, rank)]
            for mesh in self._services.meshes()
        }
        return {mesh_id: ranks for mesh_id, ranks in alive.items() if ranks}

    async def _ask(self, recording: _Recording, operation: GroupedOperation[None, None]) -> list[Missing]:
        """Send an operation to all ranks of a recording; return the ranks that have not answered."""
        targets = self._alive(recording)
        groups = await gather_all(self._services, targets, operation, _SECONDS, stack_suffices=True)
        return [missing for group in groups if isinstance(group, Unanswered) for missing in _missing(group)]

    async def ranks(self, client: ToolClient, asked: Ranks) -> RanksToAsk:
        """Return the ranks to ask."""
        recording = self._named(asked.recording)
        alive = self._alive(recording)
        return RanksToAsk(
            [
                RanksOfMesh(
                    mesh=mesh.mesh_id,
                    name=mesh.name,
                    shape=mesh.shape.to_wire(),
                    ranks=alive.get(mesh.mesh_id, []),
                    hosts=list(mesh.hosts.items()),
                    gone=[
                        (rank, str(how))
                        for rank, how in mesh.ended.items()
                        if recording.has(mesh.mesh_id, rank) and (mesh.mesh_id, rank) not in recording.before
                    ],
                )
                for mesh in self._services.meshes()
            ]
        )

    async def take(self, client: ToolClient, take: Take) -> Parts:
        """Return the next part of some ranks of one mesh."""
        self._named(take.recording)
        operation = TakeOnRank(take.recording, take.room, take.got)
        groups = await gather_all(self._services, {take.mesh: take.ranks}, operation, _SECONDS, stack_suffices=True)
        parts: dict[str, Part] = {}
        without: list[Missing] = []
        for group in groups:
            if isinstance(group, Answered):
                parts.update({str(rank): part for rank, part in group.per.items()})
            else:
                without += _missing(group)
        return Parts(parts, without)

    async def script(self, client: ToolClient, script: Script) -> Part:
        """Return the next part of the calls that the script waits for."""
        return self._named(script.recording).script.take(script.room, script.got)

    async def end(self, client: ToolClient, end: End) -> Nothing:
        """Record no more."""
        recording = self._named(end.recording)
        recording.ended = True
        recording.script.end()
        await self._ask(recording, EndOnRank(end.recording))
        return Nothing()

    def _drop(self, name: str) -> None:
        recording = self._recordings.pop(name)
        recording.script.end()
        for mesh_id, ranks in self._alive(recording).items():
            for rank in ranks:
                self._services.tell_rank(mesh_id, rank, DropOnRank(name))

    def _named(self, name: str) -> _Recording:
        recording = self._recordings.get(name)
        if recording is None:
            raise UsageError(f"there is no recording {name!r}")
        return recording

    def client_gone(self, client: ToolClient) -> None:
        """A terminal has closed its connection: forget its recordings."""
        for name in [name for name, recording in self._recordings.items() if recording.client == client.id]:
            self._drop(name)

    def rank_born(self, mesh_id: str, rank: int) -> None:
        """A rank has started: it is recorded too, if it is selected."""
        for name, recording in self._recordings.items():
            if not recording.ended and (recording.ranks is None or rank in recording.ranks.get(mesh_id, ())):
                self._services.tell_rank(mesh_id, rank, BeginOnRank(name))


def _missing(group: Unanswered) -> list[Missing]:
    return [Missing(group.mesh_id, rank, why_unanswered(group)) for rank in group.ranks]


def load(services: RootServices) -> None:
    """Serve recordings: called once, by the first request."""
    timelines = Timelines(services)
    services.serve_terminals(Begin, timelines.begin)
    services.serve_terminals(Ranks, timelines.ranks)
    services.serve_terminals(Take, timelines.take)
    services.serve_terminals(Script, timelines.script)
    services.serve_terminals(End, timelines.end)
    services.client_gone.append(timelines.client_gone)
    services.rank_born.append(timelines.rank_born)
