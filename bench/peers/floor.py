"""The floor: plain fork, unix socket pairs, frames of 64 bytes, nothing pickled, nothing handled.

No runtime in Python can be faster than this. A call on all is one write to each of the sockets and then
one read from each; pipelined calls are one write of all frames and as few reads as the kernel allows,
with one step of Python for each frame on either side.
"""

import os
import struct
import sys
import time
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair

from bench.peers.protocol import Array, Peer, announce, filled, touch

__all__ = ["PEER"]

FRAME = 64
HEAD = struct.Struct(f"<cQ{FRAME - 9}x")
PING = HEAD.pack(b"p", 0)


def read_exactly(link: socket, size: int) -> bytearray:
    """Read ``size`` bytes into fresh memory; raise ``EOFError`` where the other end is gone."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = link.recv_into(view)
        if count == 0:
            raise EOFError
        view = view[count:]
    return data


def as_array(data: bytearray) -> Array:
    """Return the bytes as an array, without copying them."""
    import numpy  # the payload rows only

    return numpy.frombuffer(data, dtype=numpy.uint8)


def work(link: socket) -> None:
    """Serve frames in the forked process; pings that arrive together are answered by one write."""
    made: dict[int, Array] = {}
    while True:
        frames = link.recv(1 << 16)
        if not frames:
            return
        while len(frames) % FRAME:
            frames += read_exactly(link, FRAME - len(frames) % FRAME)
        verb, size = HEAD.unpack_from(frames)
        if verb == b"p":
            link.sendall(b"".join([HEAD.pack(*head) for head in HEAD.iter_unpack(frames)]))
        elif verb == b">":
            link.sendall(PING)
            touched = touch(as_array(read_exactly(link, size)))
            link.sendall(HEAD.pack(b"p", touched))
        elif verb == b"=":
            link.sendall(PING)
            received = read_exactly(link, size)
            touch(as_array(received))
            link.sendall(received)
        elif verb == b"<":
            if size not in made:
                made[size] = filled(size)
            link.sendall(made[size])
        elif verb == b"b":
            link.sendall(PING)
            announce(read_exactly(link, size).decode())
            time.sleep(60)


class Sockets:
    """The forked processes and this end of their sockets, by rank."""

    def __init__(self, children: list[int], links: list[socket]) -> None:
        self._children = children
        self._links = links

    async def pids(self) -> list[int]:
        return self._children

    async def call_one(self) -> None:
        link = self._links[0]
        link.sendall(PING)
        link.recv(FRAME)

    async def call_all(self) -> int:
        for link in self._links:
            link.sendall(PING)
        return len([link.recv(FRAME) for link in self._links])

    async def pipeline_one(self, calls: int) -> None:
        self._pipeline(self._links[:1], calls)

    async def pipeline_all(self, calls: int) -> None:
        self._pipeline(self._links, calls)

    async def put_one(self, array: Array) -> int:
        return self._put(self._links[:1], array)[0]

    async def put_all(self, array: Array) -> list[int]:
        return self._put(self._links, array)

    async def get_one(self, size: int) -> Array:
        self._links[0].sendall(HEAD.pack(b"<", size))
        return as_array(read_exactly(self._links[0], size))

    async def back_one(self, array: Array) -> Array:
        link = self._links[0]
        link.sendall(HEAD.pack(b"=", len(array)))
        read_exactly(link, FRAME)
        link.sendall(array)
        return as_array(read_exactly(link, len(array)))

    async def block(self, rank: int, started: str) -> None:
        path = started.encode()
        link = self._links[rank]
        link.sendall(HEAD.pack(b"b", len(path)))
        read_exactly(link, FRAME)
        link.sendall(path)
        read_exactly(link, FRAME)

    async def stop(self) -> None:
        for link in self._links:
            link.close()
        self._reap()

    def _reap(self) -> None:
        for child in self._children:
            os.waitpid(child, 0)

    def _pipeline(self, links: list[socket], calls: int) -> None:
        for link in links:
            link.sendall(b"".join([HEAD.pack(b"p", number) for number in range(calls)]))
        for link in links:
            answers = HEAD.iter_unpack(read_exactly(link, FRAME * calls))
            if [number for _, number in answers] != list(range(calls)):
                raise RuntimeError("answers are missing or out of order")

    def _put(self, links: list[socket], array: Array) -> list[int]:
        for link in links:
            link.sendall(HEAD.pack(b">", array.size))
        for link in links:
            read_exactly(link, FRAME)
            link.sendall(array)
        return [HEAD.unpack_from(read_exactly(link, FRAME))[1] for link in links]


async def start(count: int) -> Sockets:
    """Fork ``count`` processes; each keeps its own socket only, so a death reads as EOF."""
    children: list[int] = []
    links: list[socket] = []
    for _ in range(count):
        near, far = socketpair(AF_UNIX, SOCK_STREAM)
        child = os.fork()
        if child == 0:
            near.close()
            for other in links:
                other.close()
            try:
                work(far)
                os._exit(0)
            except BaseException:  # a forked child must not return into its parent's code
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        far.close()
        children.append(child)
        links.append(near)
    return Sockets(children, links)


PEER = Peer(start)
