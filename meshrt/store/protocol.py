"""What a process and the store of a host say to each other, over a unix socket of their own.

After the handshake (`meshrt.wire.handshake`, role store) control frames in both directions; descriptors go along with
the first byte of the message that they belong to::

    process -> store
      chunk    n, id, size                       with it: the chunk's file, for reading
      grant    n, size                           may this process have so much more memory? (it has less: negative)
      lend     segment, chunk, size, kind, site, disk, to
      give     segments, to
      take     n, segment                        is it there? then this process holds it
      let_go   segments
      withdraw segments                          what was lent, and then not sent
      fetch    n, chunk
      import   n, loan                           of another machine: have it here, for all of this host; then as take
      send     n, loans, to                      processes of other machines are to hold these; ``to``: for each host
                                                 machine, agent pid, pids
      recall   segments, to                      what was sent there did not go out
      take_back segments, to                     what these were given, or lent, was not sent
    store -> process
      ok / no  n, ...                            to chunk, grant, take, fetch; with fetch: the file, for reading; with
                                                 import: the loan of what is here now; with send: those hosts that are
                                                 not lost (to), and for each where the segments are there (there)
                                                 no: why; facts of a `StoreFull`; silent, of send: which agent has
                                                 said nothing, and for how many seconds
      wait     n                                 it is on its way
      freed    segments                          the owner may write there again
      dropped  chunk                             nobody needs it mapped any more: its owner has ended

The store of a host and that of another machine's, over a connection that the one who asks has made::

    store -> owner's store
      pull     n, segment, size                  this host holds it from now on; its bytes are wanted
      let_go   segments
    owner's store -> store
      ok / no  n, kind, site
      piece    n, data                           in order; the next one when the connection takes it
    owner's store -> store
      offer    n, loan, pids                     fetch it; these hold it then
      recall   segments, pids                    what they were given was not sent
    store -> owner's store
      ok / no  n, loan
      wait     n                                 it is on its way

A message with descriptors says how many (``fds``): where fewer come, there was none left to receive them.

A process is known by its pid, as the kernel gives it. What it holds ends with the process, not with its connection: one
that was lost may be made anew.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import termios
from collections import deque
from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple

from meshrt.errors import ProtocolError
from meshrt.transport.link import LATER
from meshrt.wire.frames import Unreceived, control_decoder
from meshrt.wire.messages import Layout, control_frame, unpack_control

__all__ = ["FROM_PROCESS", "FROM_STORE", "DescriptorStream", "Host", "close_descriptors", "store_path"]

_NUMBER, _TEXT, _LIST = (int,), (str,), (list,)
#: What a process may send to the store of its host; elements of lists are looked at where they are used.
FROM_PROCESS: Layout = {
    "chunk": {"n": _NUMBER, "id": _NUMBER, "size": _NUMBER},
    "grant": {"size": _NUMBER},
    "lend": {"segment": _NUMBER, "chunk": _NUMBER, "start": _NUMBER, "size": _NUMBER, "kind": _TEXT, "to": _LIST},
    "give": {"segments": _LIST, "to": _LIST},
    "take": {"n": _NUMBER, "segment": _NUMBER},
    "let_go": {"segments": _LIST},
    "withdraw": {"segments": _LIST},
    "fetch": {"n": _NUMBER, "chunk": _NUMBER},
    "import": {"n": _NUMBER, "loan": _LIST},
    "send": {"n": _NUMBER, "loans": _LIST, "to": _LIST},
    "recall": {"segments": _LIST, "to": _LIST},
    "take_back": {"segments": _LIST, "to": _LIST},
}
#: What the store of another machine may send.
FROM_STORE: Layout = {
    "pull": {"n": _NUMBER, "segment": _NUMBER, "size": _NUMBER},
    "let_go": {"segments": _LIST},
    "offer": {"n": _NUMBER, "loan": _LIST, "pids": _LIST},
    "recall": {"segments": _LIST, "pids": _LIST},
}

#: Descriptors that one read may bring.
_DESCRIPTORS = 16
_READ = 1 << 16


def store_path(directory: str, agent_pid: int) -> str:
    """Return where the store of a host agent listens."""
    return f"{directory}/store.{agent_pid}"


class Host(NamedTuple):
    """Receivers on another machine that share a store."""

    machine: int
    agent_pid: int
    pids: list[int]


class DescriptorStream:
    """A stream of control messages with descriptors. One thread at a time.

    Raises OSError where the socket does, and ProtocolError for foreign bytes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # Who waits for a message that is lost is told by the end of the connection.
        self._decoder = control_decoder(_no_memory)
        #: Bytes that were read so far.
        self.received = 0
        #: What is queued, and the descriptors that go with it, which are closed then.
        self.unsent: deque[tuple[memoryview, list[int]]] = deque()
        #: Descriptors that have come, in the order of their messages.
        self.descriptors: deque[int] = deque()

    def queue(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Add a message to what `flush` sends.

        Args:
            descriptors: They go with it. Duplicates are queued: whoever has them may close them meanwhile.
        Raises:
            OSError: There are none left for that; nothing is queued.
        """
        if descriptors:
            message = {**message, "fds": len(descriptors)}
        data = memoryview(control_frame(message))
        own: list[int] = []
        try:
            own.extend(os.dup(descriptor) for descriptor in descriptors)  # as far as there are some, if one fails
        except OSError:
            close_descriptors(own)
            raise
        self.unsent.append((data, own))

    def flush(self) -> bool:
        """Send what is queued, as far as the socket takes it. Returns whether nothing is left."""
        while self.unsent:
            data, descriptors = self.unsent[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                sent = self.sock.sendmsg([data], rights)
            except OSError as error:
                if error.errno in LATER:
                    return False
                raise
            if sent == len(data):
                self.unsent.popleft()
            else:
                self.unsent[0] = (data[sent:], [])
            close_descriptors(descriptors)
        return True

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that ``data`` completes; under ``"descriptors"`` those that have come with each.

        Whoever handles a message closes its descriptors, or removes from the list those that it keeps.

        Raises:
            ProtocolError: Also for descriptors that belong to no message.
        """
        messages: list[dict[str, Any]] = []
        try:
            for frame in self._decoder.receive_data(data):
                message = unpack_control(frame.payload)
                count = min(message.get("fds", 0), len(self.descriptors))
                message["descriptors"] = [self.descriptors.popleft() for _ in range(count)]
                messages.append(message)
            # Those of a message come with its first byte.
            if len(self.descriptors) > (0 if self._decoder.at_boundary else _DESCRIPTORS):
                raise ProtocolError(f"{len(self.descriptors)} descriptors that belong to no message")
        except BaseException:
            close_descriptors(*(message["descriptors"] for message in messages))
            raise
        return messages

    def receive(self, *, descriptors: bool = True) -> bytes | None:
        """Read once; None: nothing is there. Empty at the end of the stream.

        Args:
            descriptors: Whether the peer may send any. If not (it has not proved the secret yet, or has no reason to),
                the kernel discards what it attaches: nothing of it is ever open in this process.
        """
        try:
            if descriptors:
                data, received, _, _ = socket.recv_fds(self.sock, _READ, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
                self.descriptors += received
            else:
                data = self.sock.recv(_READ)
        except OSError as error:
            if error.errno in LATER:
                return None
            raise
        self.received += len(data)
        return data

    def read(self, *, descriptors: bool = True) -> list[dict[str, Any]] | None:
        """Read once, as `receive`. Returns the messages that are complete now, or None at the end of the stream."""
        data = self.receive(descriptors=descriptors)
        if data is None:
            return []
        return self.feed(data) if data else None

    def unread(self) -> int:
        """Return how many bytes have come that were not read."""
        found = array.array("i", [0])
        fcntl.ioctl(self.sock, termios.FIONREAD, found)
        return found[0]

    def close(self) -> None:
        """Close the socket, and the descriptors that have not gone out, or have come and belong to no message yet."""
        self.sock.close()
        close_descriptors(self.descriptors)
        while self.unsent:
            close_descriptors(self.unsent.popleft()[1])


def _no_memory(lost: Unreceived) -> None:
    raise OSError(errno.ENOMEM, str(lost.error()))


def close_descriptors(*lists: MutableSequence[int]) -> None:
    """Close the descriptors in these lists, and empty them."""
    for descriptors in lists:
        while descriptors:
            os.close(descriptors.pop())
