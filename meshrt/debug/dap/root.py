"""Root side: which router has which rank for an IDE, and the bytes between them, unread. On the root's loop.

`meshrt.debug.dap.operations` has what routers ask, what is asked of ranks, and what both are told.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, replace

import msgspec

from meshrt.debug.dap import operations as ops
from meshrt.debug.dap.held import TABLE, Held, Holds
from meshrt.debug.dap.starting import StartedRouters
from meshrt.debug.protocol import session_of_ide
from meshrt.debug.switch import refuse, switched_off
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Nothing
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.program.places import Place
from meshrt.program.program import program_of
from meshrt.program.targets import ranks_by_mesh
from meshrt.wire.source import source_text

__all__ = ["Mediator", "load"]

#: The owner of a rank that stays stopped although its IDE is gone (``meshOnLost``), in words.
_GONE = "an IDE that has disconnected, until an IDE attaches"


@dataclass(slots=True, eq=False)
class _Channel:
    """One IDE on one rank."""

    #: The number by which the rank knows the channel, and the one by which its router does.
    number: int
    name: int
    client: ToolClient
    mesh_id: str
    rank: int
    #: Stopped threads stay stopped if the router is lost.
    stay: bool
    #: The IDE has said goodbye. Another one may attach; the rank serves it afterwards.
    leaving: bool = False

    @property
    def ide(self) -> str:
        """The owner of the rank, in words."""
        return f"the IDE of process {self.client.pid}"


class Mediator:
    """The channels of this program."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        self._channels: dict[int, _Channel] = {}
        #: The same, by the router's id and the router's number of the channel.
        self._named: dict[tuple[int, int], _Channel] = {}
        self._numbers = itertools.count(1)
        self._routers: dict[int, ToolClient] = {}
        #: By the router's id.
        self._ports: dict[int, ops.Port] = {}
        self._started = StartedRouters(services)
        #: What is stopped in an IDE, by mesh id and base rank.
        self.held: dict[tuple[str, int], Held] = {}
        #: Ranks that may be stopped although their IDE is gone: the number of its channel.
        self._orphans: dict[tuple[str, int], int] = {}

    def serve(self) -> None:
        """Register with the runtime."""
        services = self._services
        if switched_off():
            for operation in ops.OF_ROUTERS:
                services.serve_terminals(operation, refuse)
        else:
            services.serve_terminals(ops.Join, self._join)
            services.serve_terminals(ops.Ports, self._found_ports)
            services.serve_terminals(ops.Which, self._which)
            services.serve_terminals(ops.Open, self._open)
            services.serve_terminals(ops.ToEngine, self._pass_to_rank)
            services.serve_terminals(ops.Taken, self._pass_to_rank)
            services.serve_terminals(ops.Close, self._close)
            services.serve_terminals(ops.Release, self._release)
            services.serve_terminals(ops.Source, self._source)
        for report in ops.OF_CHANNELS:
            services.on_report(report, self._on_report)
        services.on_report(ops.Leaving, self._on_leaving)
        services.client_gone.append(self._client_gone)
        services.rank_born.append(self._rank_born)
        services.actor_begun.append(self._actor_begun)
        services.rank_gone.append(self._rank_gone)
        services.tables["dap"] = self
        services.tables[TABLE] = self.held
        program_of(services).sources.holds = Holds(self.held)

    def listen(self, port: int) -> None:
        """Start a router of the program itself at ``port``. Any thread."""
        self._started.listen(port)

    # -- which ranks

    async def _join(self, client: ToolClient, asked: ops.Join) -> Nothing:
        self._routers[client.id] = client
        if asked.port:
            self._ports[client.id] = ops.Port(asked.port, asked.token)
        return Nothing()

    async def _found_ports(self, _client: ToolClient, _asked: ops.Ports) -> ops.PortsFound:
        return ops.PortsFound(list(self._ports.values()))

    async def _which(self, _client: ToolClient, asked: ops.Which) -> ops.RanksFound:
        return ops.RanksFound(self._wanted(asked.mesh, asked.ranks))

    def _wanted(self, name: str, text: str) -> list[ops.Rank]:
        """Return the living ranks that are denoted. Raises MeshError if no mesh has such ranks."""
        targets = program_of(self._services).targets
        meshes = {mesh.mesh_id: mesh for mesh in targets.meshes() if not mesh.stopping}
        actors = [
            actor for actor in (*targets.actors(), *targets.bare()) if actor.mesh.mesh_id in meshes and not actor.thread
        ]
        named = [actor for actor in actors if not name or name in (actor.name, actor.mesh.name, actor.mesh.mesh_id)]
        if actors and not named:
            names = {mesh.name or mesh.mesh_id for mesh in meshes.values()} | {actor.name for actor in actors} - {""}
            raise UsageError(f"no mesh or actor has the name {name!r}; there are {', '.join(sorted(names))}")
        found = ranks_by_mesh(targets.among(named, text))
        return [
            self._described(mesh, rank, several=len(meshes) > 1)
            for mesh in meshes.values()
            for rank in sorted({*found.get(mesh.mesh_id, ())} & {*mesh.alive})
        ]

    def _described(self, mesh: MeshFacts, rank: int, *, several: bool) -> ops.Rank:
        """Return what an IDE is told of a rank; ``several``: there are other meshes."""
        coordinates = ",".join(f"{label}={index}" for label, index in mesh.shape.coordinates(rank).items())
        place = f"{coordinates} (rank {rank})" if coordinates else f"rank {rank}"
        name = mesh.name or mesh.mesh_id
        ide = self.held.get((mesh.mesh_id, rank), Held()).ide
        return ops.Rank(
            mesh.mesh_id,
            rank,
            f"{name} {place}" if several else place,
            "" if ide == _GONE else ide,
            mesh.incarnations.get(rank, 0),
            name,
        )

    def _rank_born(self, _mesh_id: str, _rank: int) -> None:
        for client in self._routers.values():
            client.report(ops.Born())

    def _actor_begun(self, _mesh_id: str, _rank: int, _name: str) -> None:
        for client in self._routers.values():
            client.report(ops.ActorBegun())

    # -- channels

    async def _open(self, client: ToolClient, asked: ops.Open) -> Nothing:
        mesh_id, rank = asked.mesh, asked.rank
        for channel in self._channels.values():
            if (channel.mesh_id, channel.rank) == (mesh_id, rank) and not channel.leaving:
                whose = "another window" if channel.client is client else f"process {channel.client.pid}"
                raise UsageError(f"an IDE is already attached to rank {rank}, through {whose}")
        number = next(self._numbers)
        channel = _Channel(number, asked.channel, client, mesh_id, rank, asked.stay)
        self._channels[number] = self._named[client.id, asked.channel] = channel
        self._orphans.pop((mesh_id, rank), None)
        before = self.held.get((mesh_id, rank), Held())
        self.held[mesh_id, rank] = replace(before, ide=channel.ide, lost=False)  # threads stopped there stay stopped
        try:
            session = session_of_ide(client.pid, asked.session)
            await self._services.ask_rank(mesh_id, rank, ops.Attach(number, channel.ide, session))
        except BaseException:
            self._forget(channel)
            raise
        # The router, or the engine (without debugpy, say), may have ended before this answer.
        if number in self._channels and not channel.leaving:
            self._say(mesh_id, rank, f"is now attached to {channel.ide}", f"are now attached to {channel.ide}")
        return Nothing()

    async def _pass_to_rank(self, client: ToolClient, asked: ops.ToEngine | ops.Taken) -> Nothing:
        channel = self._named.get((client.id, asked.channel))
        if channel is None:
            return Nothing()
        try:
            # The rank answers, although nobody waits: what has no answer is sent to one that reads nothing, too, and
            # its host agent and the root keep all of it.
            passed = msgspec.structs.replace(asked, channel=channel.number)
            await self._services.ask_rank(channel.mesh_id, channel.rank, passed)
        except MeshError as error:
            if channel.number in self._channels:  # and the rank has not ended
                self._give_up(channel, stay=True)
                client.report(ops.Closed(channel.name, str(error)))
        return Nothing()

    async def _close(self, client: ToolClient, asked: ops.Close) -> Nothing:
        """Give up a channel whose IDE has said no goodbye, as its router asks."""
        channel = self._named.get((client.id, asked.channel))
        if channel is not None:
            self._give_up(channel, stay=asked.stay)
        return Nothing()

    async def _release(self, client: ToolClient, _asked: ops.Release) -> Nothing:
        """Resume what the IDEs of a router have, and what lost IDEs have left stopped: the user ends the router."""
        for channel in [each for each in self._channels.values() if each.client is client]:
            self._give_up(channel, stay=False)
        for mesh_id, rank in [key for key, held in self.held.items() if held.lost]:
            self.let_go(mesh_id, rank)
        return Nothing()

    def let_go(self, mesh_id: str, rank: int) -> None:
        """Resume a rank that is stopped in an IDE that is gone."""
        del self.held[mesh_id, rank]
        self._services.tell_rank(mesh_id, rank, ops.Close(0))

    def _say(self, mesh_id: str, rank: int, one: str, many: str) -> None:
        """Tell the debugger's terminals, if there are any."""
        happened = self._services.tables.get("debug.happened")
        if happened is not None:
            happened(mesh_id, rank, one, many)

    def _on_leaving(self, _mesh_id: str, _rank: int, report: ops.Leaving) -> None:
        """An IDE has said goodbye. It may be back before the engine has ended, and is told of that end, too."""
        channel = self._channels.get(report.channel)
        if channel is not None:
            self._let_go(channel)
            channel.leaving = True

    def _let_go(self, channel: _Channel) -> None:
        """Record that an IDE no longer has its rank."""
        if not channel.leaving and self.held.pop((channel.mesh_id, channel.rank), None) is not None:
            self._say(channel.mesh_id, channel.rank, "was detached from its IDE", "were detached from their IDE")

    def _forget(self, channel: _Channel) -> None:
        self._let_go(channel)
        self._drop(channel)

    def _drop(self, channel: _Channel) -> None:
        self._channels.pop(channel.number, None)
        self._named.pop((channel.client.id, channel.name), None)

    def _give_up(self, channel: _Channel, *, stay: bool) -> None:
        """Give up a channel whose IDE is gone. With ``stay``, stops stay recorded until the rank reports their end."""
        key = (channel.mesh_id, channel.rank)
        held = self.held.get(key, Held())
        stays = stay and not channel.leaving  # otherwise another IDE may have the rank
        if stays:
            self._orphans[key] = channel.number
        if stays and held.since:
            self.held[key] = replace(held, ide=_GONE, lost=True)
            self._say(
                *key,
                "is still stopped, and its IDE has disconnected; continue resumes the rank",
                "are still stopped, and their IDE has disconnected; continue resumes the ranks",
            )
            self._drop(channel)
        else:
            self._forget(channel)
        self._services.tell_rank(channel.mesh_id, channel.rank, ops.Close(channel.number, stay))

    def _on_report(self, mesh_id: str, rank: int, report: ops.OfChannel) -> None:
        """Pass a report of a rank on to the router of the channel."""
        channel = self._channels.get(report.channel)
        if channel is None:
            self._of_orphan((mesh_id, rank), report)
            return
        if isinstance(report, ops.Closed):
            self._forget(channel)
        elif isinstance(report, ops.Holds) and not channel.leaving:
            self.held[mesh_id, rank] = _held(channel.ide, report)
        channel.client.report(msgspec.structs.replace(report, channel=channel.name))

    def _of_orphan(self, key: tuple[str, int], report: ops.OfChannel) -> None:
        """Take a rank's report about the stops that a lost IDE has left."""
        if self._orphans.get(key) != report.channel:
            return
        if isinstance(report, ops.Closed):
            del self._orphans[key]
            self.held.pop(key, None)
        elif isinstance(report, ops.Holds) and report.held:
            self.held[key] = replace(_held(_GONE, report), lost=True)
        elif isinstance(report, ops.Holds):
            self.held.pop(key, None)

    def _client_gone(self, client: ToolClient) -> None:
        self._routers.pop(client.id, None)
        self._ports.pop(client.id, None)
        for channel in [each for each in self._channels.values() if each.client is client]:
            self._give_up(channel, stay=channel.stay)

    def _rank_gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        self.held.pop((mesh_id, rank), None)
        self._orphans.pop((mesh_id, rank), None)
        for channel in [each for each in self._channels.values() if (each.mesh_id, each.rank) == (mesh_id, rank)]:
            self._forget(channel)
            channel.client.report(ops.Closed(channel.name, f"the rank {fate}"))

    async def _source(self, _client: ToolClient, asked: ops.Source) -> ops.SourceText:
        return ops.SourceText(source_text(asked.filename))


def _held(ide: str, report: ops.Holds) -> Held:
    since = time.time_ns() / 1e9 if report.held else 0.0
    return Held(ide, since, {actor: Place(*place) for actor, place in report.places.items()})


def load(services: RootServices) -> None:
    """Serve routers. Called once, by the first router or by the script that requests one.

    Raises:
        UsageError: ``MESHRT_DAP`` is not a port.
    """
    mediator = Mediator(services)
    mediator.serve()
    wanted = os.environ.get("MESHRT_DAP")
    if wanted:
        if not wanted.isdigit() or int(wanted) > 65535:
            raise UsageError(f"MESHRT_DAP is a port, a number from 0 (any) to 65535, not {wanted!r}")
        mediator.listen(int(wanted))
