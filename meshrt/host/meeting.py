"""Where processes that something else has started become ranks of this agent: a socket that only this user reaches.

A process::

    connected -- asks for a rank --> given: has the descriptors of the rank -- is ready --> born
        `-- no such rank, or the rank is there --> refused                       `-- ends --> the rank can be asked for

The agent is not the parent of such a rank and never ends it: the launcher that has started it does.

Only the user reaches the socket, and nothing is proved there: a process is given the secret. So little is taken of one
that has no rank: a connection has `HANDSHAKE_SECONDS` to ask for one, the oldest of more than `UNPROVED_MAX` is closed,
and so is one that sends more than its messages, or more descriptors than belong to them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from meshrt.errors import ProtocolError
from meshrt.host.child import Birth, Child, Plumbing
from meshrt.transport.acceptor import Acceptor, SelectorReaders, listening_socket
from meshrt.transport.deadlines import Deadlines
from meshrt.transport.link import peer_of
from meshrt.transport.places import make_runtime_base
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import HANDSHAKE_SECONDS, UNPROVED_MAX
from meshrt.wire.meeting import TO_MEETING, AskToJoin, Ready, Refused, Welcome

__all__ = ["Meeting", "meeting_path"]

#: Bytes of what a process says, and the descriptors that go with it.
_SAID_MAX, _DESCRIPTORS = 1024, 2


def meeting_path(name: str) -> str:
    """Return where processes of this machine meet their agent. Raises UsageError, OSError: there is no safe place.

    A name that is a path is that place: processes whose environments name different places meet there.
    """
    if os.path.isabs(name):
        return name
    return str(make_runtime_base() / f"meet-{name}")


class _Guest:
    """A process that has connected."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pid = peer_of(sock)[0]
        self.decoder = control_decoder()
        #: Bytes that it has sent.
        self.said = 0
        self.descriptors: list[int] = []
        self.child: Child | None = None


class Meeting:
    """The ranks of one mesh that are to join. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        name: Of the socket.
        births: The ranks.
        prepare: Makes both ends of the plumbing of a rank. Raises OSError.
        born: ``born(child, pid)``: a process has become a rank.
        later: Calls a function after some seconds.
    Raises:
        OSError, UsageError: There is no place for the socket.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        name: str,
        births: Iterable[Birth],
        prepare: Callable[[Birth], tuple[Child, Plumbing]],
        born: Callable[[Child, int], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._readers = SelectorReaders(selector)
        self._expected = {birth.rank: birth for birth in births}
        self._prepare = prepare
        self._born = born
        #: The oldest first.
        self._guests: dict[_Guest, None] = {}
        #: Of those that have not asked for a rank.
        self._deadlines: Deadlines[_Guest] = Deadlines(later, self._leave)
        self.mesh = next(iter(self._expected.values())).mesh_id
        self._path = meeting_path(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)  # of a job of the same name that has ended
        listener = listening_socket(self._path)
        self._node = os.stat(self._path).st_ino
        self._acceptor = Acceptor(self._readers, listener, "a process that joins", self._accepted, later)
        self._acceptor.open()

    def close(self) -> None:
        """Let no process join any more."""
        self._acceptor.close()
        for guest in tuple(self._guests):
            self._leave(guest)
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._node:  # and not of a job of the same name that has begun
                Path(self._path).unlink()

    def _accepted(self, sock: socket.socket) -> None:
        waiting = [guest for guest in self._guests if guest.child is None]
        if len(waiting) >= UNPROVED_MAX:
            self._leave(waiting[0])
        guest = _Guest(sock)
        self._readers.add_reader(sock, lambda: self._read(guest))
        self._guests[guest] = None
        self._deadlines.set(guest, time.monotonic() + HANDSHAKE_SECONDS)

    def _leave(self, guest: _Guest) -> None:
        """Forget a process; what it was given is closed, unless it has become a rank. A no-op the second time."""
        if guest not in self._guests:
            return
        del self._guests[guest]
        self._deadlines.drop(guest)
        self._readers.remove_reader(guest.sock)
        guest.sock.close()
        for descriptor in guest.descriptors:
            os.close(descriptor)
        if guest.child is not None:
            self._expected[guest.child.birth.rank] = guest.child.birth
            guest.child.close()

    def _read(self, guest: _Guest) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(guest.sock, _SAID_MAX, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            guest.descriptors += descriptors
            guest.said += len(data)
            if not data:
                self._leave(guest)
                return
            if guest.said > _SAID_MAX or len(guest.descriptors) > _DESCRIPTORS:
                raise ProtocolError("the message of a joining process is too long")
            for frame in guest.decoder.receive_data(data):
                if guest not in self._guests:
                    return  # it was refused, and goes on all the same
                match TO_MEETING.decode(frame.payload):
                    case AskToJoin(rank=rank):
                        self._give(guest, rank)
                    case Ready():
                        self._ready(guest)
                        return
        except BlockingIOError:
            pass
        except (OSError, ProtocolError):  # it has ended, or is no process of this program
            self._leave(guest)

    def _give(self, guest: _Guest, rank: int) -> None:
        birth = self._expected.get(min(self._expected, default=-1) if rank < 0 else rank)
        why = ""
        if not guest.pid:
            why = "its PID namespace differs from that of the host agent"
        elif guest.child is not None or birth is None:
            which = "each rank" if rank < 0 else f"rank {rank}"
            why = f"{which} already has a process, or is on another host"
        else:
            try:
                child, plumbing = self._prepare(birth)
            except OSError as error:  # it tries again
                why = f"the host agent has no resources for the process: {error.strerror}"
        if why:
            guest.sock.sendall(control_frame(Refused(why)))
            self._leave(guest)
            return
        del self._expected[child.birth.rank]
        guest.child = child
        self._deadlines.drop(guest)
        given = [plumbing.control.fileno(), plumbing.listener.fileno(), plumbing.door.fileno()]
        try:
            socket.send_fds(guest.sock, [_welcome(child.birth)], given)
        finally:
            plumbing.close()

    def _ready(self, guest: _Guest) -> None:
        child = guest.child
        if child is None or not guest.descriptors:
            raise ProtocolError("a joining process is ready, but has no rank")
        stacks, *watcher = guest.descriptors
        os.dup2(stacks, child.fault_file, inheritable=False)
        child.watcher = socket.socket(fileno=watcher[0]) if watcher else None  # OSError: it is no socket
        os.close(stacks)
        guest.child, guest.descriptors = None, []
        self._leave(guest)
        self._born(child, guest.pid)


def _welcome(birth: Birth) -> bytes:
    return control_frame(
        Welcome(
            birth.mesh_id,
            birth.rank,
            birth.mesh_name,
            birth.labels,
            birth.sizes,
            birth.run_id,
            birth.address,
            bytes(birth.secret),
            birth.host,
            birth.run_directory,
            birth.kept_at,
            birth.operations,
            birth.certificate,
        )
    )
