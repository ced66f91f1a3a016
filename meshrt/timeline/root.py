"""The root's side of recording: forwards requests of a terminal to ranks, and keeps nothing of their answers.

* ``timeline.begin`` {ranks}: begin to record on the ranks of a selection ("": on all ranks, also those that start
  later); returns ``recording``, its name, and ``without``.
* ``timeline.ranks`` {recording}: the ranks to ask now.
* ``timeline.take`` {recording, mesh, ranks, room, got}: the next part of each (`meshrt.timeline.recorder`), by rank.
* ``timeline.script`` {recording, room, got}: the next part of the script (`meshrt.timeline.script`).
* ``timeline.end`` {recording}: nothing more is recorded; returns ``without``.
* ``timeline.drop`` {recording}: forget it. The end of the connection does the same.

``without`` says why ranks have not answered: ``[[mesh id, rank, why], ...]``. On the root's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.facts import Body, Group
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.asking import gather_all, texts_of
from meshrt.program.program import program_of
from meshrt.selection import Selection, names_states, parse, resolve
from meshrt.timeline.script import ScriptTimeline

__all__ = ["Timelines", "load"]

#: Seconds after which a rank counts as one that does not answer.
_SECONDS = 2.0


class _Recording:
    """Args: client: The terminal. ranks: By mesh id; None: all. script: The calls that the script waits for."""

    def __init__(self, client: int, ranks: dict[str, tuple[int, ...]] | None, script: ScriptTimeline) -> None:
        self.client = client
        self.ranks = ranks
        self.ended = False
        self.script = script


class Timelines:
    """The recordings under way."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._recordings: dict[str, _Recording] = {}
        self._count = 0

    async def begin(self, client: ToolClient, body: Body) -> Body:
        """Serve ``timeline.begin``: begin to record."""
        text = str(body.get("ranks", ""))
        ranks = self._chosen(text) if text.strip() else None
        self._count += 1
        name = f"{client.id}.{self._count}"
        recording = self._recordings[name] = _Recording(
            client.id, ranks, ScriptTimeline(self._services.pending_calls())
        )
        try:
            without = await self._ask(name, recording, "timeline.begin")
        except BaseException:  # no terminal knows its name and could end it
            if name in self._recordings:
                self._drop(name)
            raise
        if name not in self._recordings:
            raise UsageError("the recording was dropped before it had begun")
        return {"recording": name, "without": without}

    def _chosen(self, text: str) -> dict[str, tuple[int, ...]]:
        """Return the ranks of a selection, by mesh id; a state selects the ranks that are in it now."""
        selection = parse(text)
        if not names_states(selection):
            return self._selected(selection)
        found: dict[str, set[int]] = {}
        for selected in program_of(self._services).targets.everywhere("", text):
            found.setdefault(selected.actor.mesh.mesh_id, set()).update(selected.ranks)
        return {mesh_id: tuple(sorted(members)) for mesh_id, members in found.items()}

    def _selected(self, selection: Selection) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        problem: SelectionError | None = None
        for mesh in self._services.meshes():
            try:
                found[mesh.mesh_id] = tuple(resolve(selection, mesh.shape))
            except SelectionError as error:
                problem = problem or error
        if problem is not None and not found:
            raise problem
        return found

    def _alive(self, recording: _Recording) -> dict[str, list[int]]:
        alive = {}
        for mesh in self._services.meshes():
            wanted = None if recording.ranks is None else set(recording.ranks.get(mesh.mesh_id, ()))
            alive[mesh.mesh_id] = [
                rank for rank in mesh.alive if rank in mesh.pids and (wanted is None or rank in wanted)
            ]
        return {mesh_id: ranks for mesh_id, ranks in alive.items() if ranks}

    async def _ask(self, name: str, recording: _Recording, operation: str) -> list[list[Any]]:
        """Send an operation to all ranks of a recording; return the ranks that have not answered, and why."""
        groups = await self._gather(self._alive(recording), operation, {"recording": name})
        return _without(groups)

    async def _gather(self, targets: Mapping[str, Sequence[int]], operation: str, body: Body) -> list[Group]:
        return await gather_all(self._services, targets, operation, body, _SECONDS, stack_suffices=True)

    async def ranks(self, client: ToolClient, body: Body) -> Body:
        """Serve ``timeline.ranks``: return the ranks to ask."""
        alive = self._alive(self._recording(body))
        return {
            "meshes": [
                {
                    "mesh": mesh.mesh_id,
                    "name": mesh.name,
                    "shape": mesh.shape.to_wire(),
                    "ranks": alive.get(mesh.mesh_id, []),
                    "hosts": list(mesh.hosts.items()),
                    "gone": [[rank, ended.how] for rank, ended in mesh.ended.items()],
                }
                for mesh in self._services.meshes()
            ]
        }

    async def take(self, client: ToolClient, body: Body) -> Body:
        """Serve ``timeline.take``: return the next part of some ranks of one mesh."""
        name, mesh_id = str(body["recording"]), str(body["mesh"])
        self._recording(body)
        asked = {"recording": name, "room": int(body["room"]), "got": body["got"]}
        groups = await self._gather({mesh_id: [int(rank) for rank in body["ranks"]]}, "timeline.take", asked)
        parts = {str(rank): part for group in groups if group.kind == "answered" for rank, part in group.per.items()}
        return {"parts": parts, "without": _without(groups)}

    async def script(self, client: ToolClient, body: Body) -> Body:
        """Serve ``timeline.script``: return the next part of the calls that the script waits for."""
        return self._recording(body).script.take(int(body["room"]), int(body["got"]))

    async def end(self, client: ToolClient, body: Body) -> Body:
        """Serve ``timeline.end``: record no more."""
        recording = self._recording(body)
        recording.ended = True
        recording.script.end()
        return {"without": await self._ask(str(body["recording"]), recording, "timeline.end")}

    async def drop(self, client: ToolClient, body: Body) -> Body:
        """Serve ``timeline.drop``: forget a recording."""
        self._recording(body)
        self._drop(str(body["recording"]))
        return {}

    def _drop(self, name: str) -> None:
        recording = self._recordings.pop(name)
        recording.script.end()
        for mesh_id, ranks in self._alive(recording).items():
            for rank in ranks:
                self._services.send_rank(mesh_id, rank, "timeline.drop", {"recording": name})

    def _recording(self, body: Body) -> _Recording:
        recording = self._recordings.get(str(body["recording"]))
        if recording is None:
            raise UsageError(f"there is no recording {str(body['recording'])!r}")
        return recording

    def client_gone(self, client: ToolClient) -> None:
        """A terminal has closed its connection: forget its recordings."""
        for name in [name for name, recording in self._recordings.items() if recording.client == client.id]:
            self._drop(name)

    def rank_born(self, mesh_id: str, rank: int) -> None:
        """A rank has started: it is recorded too, if it is selected."""
        for name, recording in self._recordings.items():
            if not recording.ended and (recording.ranks is None or rank in recording.ranks.get(mesh_id, ())):
                self._services.send_rank(mesh_id, rank, "timeline.begin", {"recording": name})


def _without(groups: Sequence[Group]) -> list[list[Any]]:
    return [[mesh_id, rank, why] for why, places in texts_of(groups).items() for mesh_id, rank in places]


def load(services: RootServices) -> None:
    """Serve recordings: called once, by the first request."""
    timelines = Timelines(services)
    services.tool_operations["timeline.begin"] = timelines.begin
    services.tool_operations["timeline.ranks"] = timelines.ranks
    services.tool_operations["timeline.take"] = timelines.take
    services.tool_operations["timeline.script"] = timelines.script
    services.tool_operations["timeline.end"] = timelines.end
    services.tool_operations["timeline.drop"] = timelines.drop
    services.client_gone.append(timelines.client_gone)
    services.rank_born.append(timelines.rank_born)
