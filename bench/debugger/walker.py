"""The actor of meshrt that stops, in a module of its own: ranks import nothing else of the benchmark."""

import socket

from meshrt import Actor, context, endpoint

__all__ = ["STEPS", "Walker"]

STEPS = 1000
"""Steps of the loop behind the breakpoint, two lines each: more than any run casts ``n``."""


class Walker(Actor):
    """The actor that stops."""

    @endpoint
    def ping(self) -> None:
        """Answer at once."""

    @endpoint
    def walk(self) -> int:
        """Stop, and have two lines to step to and fro."""
        rank = context().message_rank.rank
        breakpoint()
        place = rank
        for step in range(STEPS):
            place = rank + step
        return place

    @endpoint
    def receive(self, folder: str) -> bytes:
        """Wait for a byte that comes when everything is over."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
            inbox.bind(f"{folder}/{context().message_rank.rank}")
            return inbox.recv(1)
