"""Where processes of a program listen: on this machine at a path, on another one at the data port of its host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["STORE", "HostAddress", "MeshAddress", "Port", "RankAddress", "Way", "rank_name", "socket_path"]

Port = tuple[str, int]
"""An address of an interface, and a port there."""

#: What is asked for at the data port of a host: its store.
STORE = "store"


def socket_path(directory: str, mesh_id: str, rank: int) -> str:
    """Return where a rank listens for callers, on its own machine."""
    return f"{directory}/{mesh_id}.{rank}"


def rank_name(mesh_id: str, rank: int) -> str:
    """Return what is asked for at the data port of a host: one of its ranks."""
    return f"rank/{mesh_id}/{rank}"


class Way(NamedTuple):
    """Where the root passes on what a process sends to a host that it does not reach.

    Attributes:
        port: Of the root, as the machine of the process reaches it.
        name: What to ask for there.
    """

    port: Port
    name: str


class HostAddress(NamedTuple):
    """How the processes of a host agent are reached.

    Attributes:
        machine: Processes of one machine share memory and files, and reach each other by paths.
        agent_pid: The pid of the agent there.
        directory: Has the sockets; bytes, as the kernel knows it.
        ports: Where others reach them: the first address that answers. Empty: the program has one machine.
    """

    machine: int
    agent_pid: int
    directory: bytes
    ports: tuple[Port, ...] = ()


class RankAddress(NamedTuple):
    """Where a rank listens for callers."""

    host: HostAddress
    mesh_id: str
    rank: int

    @property
    def path(self) -> str:
        """Its socket, on its own machine."""
        return socket_path(os.fsdecode(self.host.directory), self.mesh_id, self.rank)

    @property
    def name(self) -> str:
        """What a caller asks for at the data port of its host."""
        return rank_name(self.mesh_id, self.rank)

    def __str__(self) -> str:
        return self.path if not self.host.ports else " or ".join(f"{host}:{port}" for host, port in self.host.ports)


class MeshAddress(NamedTuple):
    """Where the ranks of a mesh listen; a handle carries it.

    Attributes:
        hosts: In the order of the ranks, which are divided evenly among them.
        size: How many ranks the whole mesh has.
    """

    hosts: tuple[HostAddress, ...]
    size: int

    @classmethod
    def of(cls, hosts: Sequence[HostAddress], size: int) -> MeshAddress:
        """Return the address of a mesh with ``size`` ranks on ``hosts``."""
        if all(not host.ports and host.directory == hosts[0].directory for host in hosts):
            return cls((hosts[0],), size)  # a path says nothing of the agent
        return cls(tuple(hosts), size)

    def rank(self, mesh_id: str, rank: int) -> RankAddress:
        """Return the address of a base rank."""
        return RankAddress(self.hosts[self.host_of(rank)], mesh_id, rank)

    def host_of(self, rank: int) -> int:
        """Return the place in ``hosts`` of a base rank."""
        return rank * len(self.hosts) // self.size if len(self.hosts) > 1 else 0
