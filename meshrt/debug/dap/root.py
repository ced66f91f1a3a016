"""Root side: which router has which rank for an IDE, and the bytes between them, unread. On the root's loop.

Operations of routers:

* ``dap.join`` {port, token}: subscribe to ranks that are born (events ``dap.born`` {mesh, rank}) and to their actors
  (``dap.actor``). ``port``: where IDEs connect to this router, with this token; missing if they do not connect.
* ``dap.ports``: the ports and tokens of the living routers. They are stored only here and in ``launch.json``.
* ``dap.which`` {mesh, ranks}: the living ranks that a mesh's or an actor's name and a selection denote.
* ``dap.open`` {mesh, rank, channel, stay, session}: a channel to a rank, with a number that the router chooses. It is
    refused if another IDE has the rank. An IDE that has said goodbye (event ``dap.leaving``) no longer has it.
  ``session``: the number of the session in whose console breakpoints may have been set.
* ``dap.release``: threads that are stopped for its IDEs, or for an IDE that is gone, resume.
* ``dap.data``, ``dap.ack``, ``dap.close``: as in `meshrt.debug.dap.rank.ide`, which has the events, too.
* ``dap.source`` {filename}: the text of a file that only the program has.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from meshrt.debug.dap.held import TABLE, Held, Holds
from meshrt.debug.dap.starting import StartedRouters
from meshrt.debug.protocol import session_of_ide
from meshrt.debug.switch import refuse, switched_off
from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.facts import Body
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.hooks.snapshot import MeshFacts
from meshrt.program.places import Place
from meshrt.program.program import program_of
from meshrt.selection import parse, resolve
from meshrt.wire.source import source_text

__all__ = ["Mediator", "load"]

#: The owner of a rank that stays stopped although its IDE is gone (``meshOnLost``), in words.
_GONE = "an IDE that is gone, until one attaches"
_EVENTS = ("dap.waiting", "dap.opened", "dap.data", "dap.holds", "dap.said", "dap.raised", "dap.closed")


@dataclass(frozen=True, slots=True)
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
        #: By the router's id: its port, and the token that it demands.
        self._ports: dict[int, tuple[int, str]] = {}
        self._started = StartedRouters(services)
        #: Numbers of channels whose IDE has said goodbye. Another IDE may attach; the rank serves it afterwards.
        self._leaving: set[int] = set()
        #: What is stopped in an IDE, by mesh id and base rank.
        self.held: dict[tuple[str, int], Held] = {}
        #: Ranks that may be stopped although their IDE is gone: the number of its channel.
        self._orphans: dict[tuple[str, int], int] = {}

    def serve(self) -> None:
        """Register with the runtime."""
        services = self._services
        services.tool_operations.update(
            {
                "dap.join": self._join,
                "dap.ports": self._told_ports,
                "dap.which": self._which,
                "dap.open": self._open,
                "dap.data": self._data,
                "dap.ack": self._ack,
                "dap.close": self._close,
                "dap.release": self._release,
                "dap.source": self._source,
            }
        )
        if switched_off():
            ours = [name for name in services.tool_operations if name.startswith("dap.")]
            services.tool_operations.update(dict.fromkeys(ours, refuse))
        services.rank_events.update({name: self._pass_on(name) for name in _EVENTS})
        services.rank_events["dap.leaving"] = self._on_leaving
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

    async def _join(self, client: ToolClient, body: Body) -> Body:
        self._routers[client.id] = client
        if "port" in body:
            self._ports[client.id] = int(body["port"]), str(body["token"])
        return {"pid": os.getpid(), "argv": sys.argv}

    async def _told_ports(self, client: ToolClient, body: Body) -> Body:
        return {"ports": [{"port": port, "token": token} for port, token in self._ports.values()]}

    async def _which(self, client: ToolClient, body: Body) -> Body:
        return {"ranks": self._wanted(str(body.get("mesh", "")), str(body.get("ranks", "")))}

    def _wanted(self, name: str, text: str) -> list[Body]:
        """Return the living ranks that are denoted. Raises MeshError if no mesh has such ranks."""
        selection = parse(text) if text else None
        meshes = [mesh for mesh in self._services.meshes() if not mesh.stopping]
        named = [mesh for mesh in meshes if not name or _is_called(mesh, name)]
        if meshes and not named:
            names = {mesh.name or mesh.mesh_id for mesh in meshes}
            names |= {actor for mesh in meshes for actor in mesh.actors}
            raise UsageError(f"no mesh, and no actor, is called {name!r}; there are {', '.join(sorted(names))}")
        found: list[Body] = []
        problems: list[SelectionError] = []
        for mesh in named:
            try:
                ranks: Sequence[int] = (
                    sorted(mesh.shape.ranks()) if selection is None else resolve(selection, mesh.shape)
                )
            except SelectionError as error:
                problems.append(error)
                continue
            alive = set(mesh.alive)
            found += [self._facts(mesh, rank, several=len(meshes) > 1) for rank in ranks if rank in alive]
        if problems and len(problems) == len(named):
            raise problems[0]
        return found

    def _facts(self, mesh: MeshFacts, rank: int, *, several: bool) -> Body:
        ide = self.held.get((mesh.mesh_id, rank), Held()).ide
        return {**_facts(mesh, rank, several=several), "ide": "" if ide == _GONE else ide}

    def _rank_born(self, mesh_id: str, rank: int) -> None:
        for client in self._routers.values():
            client.push("dap.born", {"mesh": mesh_id, "rank": rank})

    def _actor_begun(self, mesh_id: str, rank: int, _name: str) -> None:
        """Tell routers of actors, too: an actor's name may denote ranks, which get the actor only after their birth."""
        for client in self._routers.values():
            client.push("dap.actor", {"mesh": mesh_id, "rank": rank})

    # -- channels

    async def _open(self, client: ToolClient, body: Body) -> Body:
        mesh_id, rank = str(body["mesh"]), int(body["rank"])
        for channel in self._channels.values():
            if (channel.mesh_id, channel.rank) == (mesh_id, rank) and channel.number not in self._leaving:
                whose = "another window" if channel.client is client else f"process {channel.client.pid}"
                raise UsageError(f"an IDE is attached to rank {rank} already, through {whose}")
        number, name = next(self._numbers), int(body["channel"])
        channel = _Channel(number, name, client, mesh_id, rank, bool(body.get("stay")))
        self._channels[number] = self._named[client.id, name] = channel
        self._orphans.pop((mesh_id, rank), None)
        before = self.held.get((mesh_id, rank), Held())
        self.held[mesh_id, rank] = replace(before, ide=channel.ide, lost=False)  # threads stopped there stay stopped
        try:
            session = session_of_ide(client.pid, int(body["session"]))
            asked = {"channel": number, "ide": channel.ide, "session": session}
            await self._services.request_rank(mesh_id, rank, "dap.open", asked)
        except BaseException:
            self._forget(channel)
            raise
        # The router, or the engine (without debugpy, say), may have ended before this answer.
        if number in self._channels and number not in self._leaving:
            self._say(mesh_id, rank, f"is in {channel.ide} now", f"are in {channel.ide} now")
        return {}

    async def _data(self, client: ToolClient, body: Body) -> Body:
        self._send(client, "dap.data", body)
        return {}

    async def _ack(self, client: ToolClient, body: Body) -> Body:
        self._send(client, "dap.ack", body)
        return {}

    async def _close(self, client: ToolClient, body: Body) -> Body:
        """Give up a channel whose IDE has said no goodbye, as its router asks."""
        channel = self._named.get((client.id, int(body["channel"])))
        if channel is not None:
            self._give_up(channel, stay=bool(body.get("stay")))
        return {}

    async def _release(self, client: ToolClient, body: Body) -> Body:
        """Resume what the IDEs of a router have, and what lost IDEs have left stopped: the user ends the router."""
        for channel in [each for each in self._channels.values() if each.client is client]:
            self._give_up(channel, stay=False)
        for mesh_id, rank in [key for key, held in self.held.items() if held.lost]:
            self.let_go(mesh_id, rank)
        return {}

    def let_go(self, mesh_id: str, rank: int) -> None:
        """Resume a rank that is stopped in an IDE that is gone."""
        del self.held[mesh_id, rank]
        self._services.send_rank(mesh_id, rank, "dap.close", {"channel": 0, "stay": False})

    def _send(self, client: ToolClient, operation: str, body: Body) -> None:
        channel = self._named.get((client.id, int(body["channel"])))
        if channel is not None:
            asked = {**body, "channel": channel.number}
            self._services.send_rank(channel.mesh_id, channel.rank, operation, asked)

    def _say(self, mesh_id: str, rank: int, one: str, many: str) -> None:
        """Tell the debugger's terminals, if there are any."""
        happened = self._services.tables.get("debug.happened")
        if happened is not None:
            happened(mesh_id, rank, one, many)

    def _on_leaving(self, _mesh_id: str, _rank: int, body: Body) -> None:
        """An IDE has said goodbye. It may be back before the engine has ended, and is told of that end, too."""
        channel = self._channels.get(int(body["channel"]))
        if channel is not None:
            self._let_go(channel)
            self._leaving.add(channel.number)

    def _let_go(self, channel: _Channel) -> None:
        """Record that an IDE no longer has its rank."""
        if channel.number not in self._leaving and self.held.pop((channel.mesh_id, channel.rank), None) is not None:
            self._say(channel.mesh_id, channel.rank, "was left by its IDE", "were left by their IDE")

    def _forget(self, channel: _Channel) -> None:
        self._let_go(channel)
        self._drop(channel)

    def _drop(self, channel: _Channel) -> None:
        self._leaving.discard(channel.number)
        self._channels.pop(channel.number, None)
        self._named.pop((channel.client.id, channel.name), None)

    def _give_up(self, channel: _Channel, *, stay: bool) -> None:
        """Give up a channel whose IDE is gone. With ``stay``, stops stay recorded until the rank reports their end."""
        key = (channel.mesh_id, channel.rank)
        held = self.held.get(key, Held())
        stays = stay and channel.number not in self._leaving  # otherwise another IDE may have the rank
        if stays:
            self._orphans[key] = channel.number
        if stays and held.since:
            self.held[key] = replace(held, ide=_GONE, lost=True)
            self._say(
                *key,
                "stands where its IDE, which is gone, has left it; continue lets it go on",
                "stand where their IDE, which is gone, has left them; continue lets them go on",
            )
            self._drop(channel)
        else:
            self._forget(channel)
        body = {"channel": channel.number, "stay": stay}
        self._services.send_rank(channel.mesh_id, channel.rank, "dap.close", body)

    def _pass_on(self, name: str) -> Callable[[str, int, Body], None]:
        def handler(mesh_id: str, rank: int, body: Body) -> None:
            channel = self._channels.get(int(body["channel"]))
            if channel is None:
                self._of_orphan(name, (mesh_id, rank), body)
                return
            if name == "dap.closed":
                self._forget(channel)
            elif name == "dap.holds" and channel.number not in self._leaving:
                self.held[mesh_id, rank] = _held(channel.ide, body)
            channel.client.push(name, {**body, "channel": channel.name})

        return handler

    def _of_orphan(self, name: str, key: tuple[str, int], body: Body) -> None:
        """Take a rank's report about the stops that a lost IDE has left."""
        if self._orphans.get(key) != int(body["channel"]):
            return
        if name == "dap.closed":
            del self._orphans[key]
            self.held.pop(key, None)
        elif name == "dap.holds" and body["held"]:
            self.held[key] = replace(_held(_GONE, body), lost=True)
        elif name == "dap.holds":
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
            channel.client.push("dap.closed", {"channel": channel.name, "why": f"the rank {fate}"})

    async def _source(self, client: ToolClient, body: Body) -> Body:
        return {"text": source_text(str(body["filename"]))}


def _held(ide: str, body: Body) -> Held:
    since = time.time_ns() / 1e9 if body["held"] else 0.0
    return Held(ide, since, {str(actor): Place.from_wire(place) for actor, place in body["places"].items()})


def _is_called(mesh: MeshFacts, name: str) -> bool:
    return name in (mesh.name, mesh.mesh_id, *mesh.actors)


def _facts(mesh: MeshFacts, rank: int, *, several: bool) -> Body:
    coordinates = ",".join(f"{label}={index}" for label, index in mesh.shape.coordinates(rank).items())
    place = f"{coordinates} (rank {rank})" if coordinates else f"rank {rank}"
    name = mesh.name or mesh.mesh_id
    return {
        "mesh": mesh.mesh_id,
        "mesh_name": name,
        "rank": rank,
        "name": f"{name} {place}" if several else place,
        "pid": mesh.pids.get(rank, 0),
        "host": mesh.hosts.get(rank, ""),
        "life": mesh.incarnations.get(rank, 0),
    }


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
