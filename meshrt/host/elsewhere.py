"""What an agent has of its own where a program has several machines: directories, a port that leads to its ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from meshrt.files import RUNTIME_FILES
from meshrt.host.child import Birth, Child
from meshrt.host.osutil import RUN_VARIABLE
from meshrt.store.machine import machine_of
from meshrt.transport import directories
from meshrt.transport.acceptor import SelectorReaders
from meshrt.transport.dataport import ACCEPTED, DataPort, listen
from meshrt.transport.racing import begin_to_connect
from meshrt.transport.rootpipe import RootPipe
from meshrt.wire.addresses import STORE, Port
from meshrt.wire.control import Address
from meshrt.wire.handshake import Secret
from meshrt.wire.operations import FilePart
from meshrt.wire.preface import host_name, host_proof, preface
from meshrt.wire.tree import Dial

__all__ = ["Doors", "OwnDirectories", "error_file", "remove_sockets", "search_path"]

#: Bytes of an error file that are sent to the root.
_ERROR_MAX = 8 << 20


class Doors:
    """One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        children: The ranks of the agent.
        pid: Of the agent.
        secret: The port proves that it has it.
        store: Takes the connections that ask for the store of this host, and when they were accepted (monotonic).
        later: Calls a function after some seconds, on that thread.

    Attributes:
        ports: Where others reach this host.

    Raises:
        UsageError, OSError: As `meshrt.transport.dataport.listen`.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        children: Mapping[Address, Child],
        pid: int,
        secret: Secret,
        store: Callable[[socket.socket, float], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        listener, ports = listen()
        self.ports: tuple[Port, ...] = ports
        self._selector = selector
        self._children = children
        self._name = host_name(machine_of(pid), pid)
        self._secret = secret
        self._store = store
        self._port = DataPort(SelectorReaders(selector), listener, self._give, later)

    def _give(self, name: str, sock: socket.socket, accepted: float) -> None:
        """Pass a connection on to the process that it asks for, or close it: the peer dials again, if it may."""
        if name == STORE:
            self._store(sock, accepted)
            return
        with sock, contextlib.suppress(OSError):
            if name.startswith(self._name):
                sock.send(host_proof(self._secret, name))
            else:
                self._pass_on(self._child(name), sock, accepted)

    @staticmethod
    def _pass_on(child: Child | None, sock: socket.socket, accepted: float) -> None:
        if child is not None:
            socket.send_fds(child.door, [ACCEPTED.pack(accepted)], [sock.fileno()])

    def dial(self, dial: Dial) -> None:
        """Connect a process with one that does not reach this host. What fails is closed: that one asks again."""
        try:
            sock = begin_to_connect(dial.port)
        except OSError:
            return
        connected = functools.partial(self._connected, sock, dial)
        self._selector.register(sock, selectors.EVENT_WRITE, connected)

    def _connected(self, sock: socket.socket, dial: Dial, _events: int) -> None:
        self._selector.unregister(sock)
        try:
            sock.send(preface(dial.name))
        except OSError:
            sock.close()
        else:
            self._give(dial.target, sock, time.monotonic())

    def _child(self, name: str) -> Child | None:
        match name.split("/"):
            case ["rank", mesh, rank] if rank.isdigit():
                return self._children.get((mesh, int(rank)))
        return None


class OwnDirectories:
    """Made when the agent has joined, removed when it ends.

    Args:
        machine: Its number. Machines that share files have them in one place, and the directories of the program, too.
        tell: Takes lines for the user: for example that a directory is not at its usual place.

    Attributes:
        runtime: Of sockets.
        run: Of files that need a disk while the program runs; what a user reads afterwards is sent to the root.
    """

    def __init__(self, machine: int, tell: Callable[[str], object]) -> None:
        name = f"{machine & 0xFFFFFFFF:08x}"
        self._runtime = directories.create_runtime(name, tell)
        #: Tells ranks of the end of this process, as the root's does on its machine.
        self._pipe = RootPipe(self._runtime)
        # Not with the id of the program: commands look for that where the script runs, maybe in the same home.
        self._run = directories.create_run(name, tell)
        self.runtime, self.run = str(self._runtime), str(self._run)

    def close(self) -> None:
        """Remove them."""
        self._pipe.close()
        directories.discard(self._runtime)
        directories.discard(self._run)


def error_file(birth: Birth) -> Iterator[FilePart]:
    """Yield what a rank that has ended, or a child of it, has written to its error file, for the root."""
    path = directories.error_path(birth.run_directory, birth.mesh_name, birth.mesh_id, birth.rank)
    try:
        with path.open("rb") as file:
            data = file.read(_ERROR_MAX)
    except OSError:
        return
    yield from FilePart.parts(path.name, data)


def remove_sockets(directory: str | None) -> None:
    """Remove the runtime directory of a program that has died; None: it has died before it could name it."""
    if directory is not None:
        directories.remove_tree(Path(directory))
        return
    for path in directories.runtime_of(os.environ.get(RUN_VARIABLE, "").partition(".")[0]):
        if not directories.in_use(path):
            directories.remove_tree(path)


def search_path(given: Sequence[bytes], own: Sequence[str]) -> list[str]:
    """Return what modules are searched in.

    Args:
        given: The entries of the root. An empty one stands for the libraries of this machine, if that is another one.
        own: The entries that this process was started with.
    """
    runtime = os.path.dirname(os.path.dirname(RUNTIME_FILES))  # last: its modules are found by their package
    libraries = [*(entry for entry in own if entry != runtime), runtime]
    return [path for entry in given for path in ([os.fsdecode(entry)] if entry else libraries)]
