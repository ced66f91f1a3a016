"""The table of the requests that the router itself reads, and the base of their classes."""

from __future__ import annotations

from functools import cache
from typing import Protocol

import msgspec

from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.sources import Sources
from meshrt.debug.dap.router.view import Answer
from meshrt.debug.dap.wire import Message, arguments_of
from meshrt.errors import UsageError
from meshrt.hooks.operations import Data

__all__ = ["MeshSession", "RankSession", "Request", "passes_on", "read"]


class MeshSession(Protocol):
    """The session of the mesh, as requests use it."""

    program: ProgramLink

    def write(self, message: Message) -> None:
        """Send a message to the IDE."""

    def said(self, text: str) -> None:
        """Write a line on the debug console."""

    def announce(self) -> None:
        """Have the IDE open a session for each rank, now and whenever one is born."""

    async def run_line(self, line: str) -> str:
        """Run a line on the console of the mesh and return its output. Raises MeshError, ConnectionError."""

    def summary(self) -> str:
        """Return how many ranks there are, and how many of them are stopped."""

    def leave(self) -> None:
        """End the sessions of all ranks, and this one."""


class RankSession(Protocol):
    """The session of one rank, as requests use it."""

    link: RankLink
    sources: Sources

    def pass_on(self, message: Message) -> Answer:
        """Send a message to the engine, which answers."""

    def evaluate(self, message: Message, line: str) -> Answer:
        """Evaluate a line of the debug console."""

    def show_source(self, message: Message, number: int) -> Answer:
        """Answer with the text of a source with a number."""

    def leave(self, message: Message) -> Answer:
        """Leave the rank; the answer is given when it is free again."""


class Request(Data, frozen=True, tag_field="command", rename="camel"):
    """A request: its tag is its command, its fields are the arguments that are read here.

    An IDE may leave out what is optional, or send null. All arguments are in the message, which is passed on.
    """

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        """Serve the request in the session of the mesh. Raises MeshError, ConnectionError, TimeoutError."""
        raise UsageError(f"{message['command']} works only in the session of a rank; this is the session of the mesh")

    def at_rank(self, rank: RankSession, message: Message) -> Answer:
        """Serve the request in the session of a rank; must not wait. Without this, the request is passed on unread."""
        return rank.pass_on(message)

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        """Serve the request in a session in which ranks are threads. Raises as `at_mesh`."""
        raise UsageError(f"{message['command']} does not work in a session in which ranks are threads")


@cache
def _table() -> dict[str, type[Request]]:
    """Return the classes of requests, by command; those that are only bases of others are left out."""
    kinds: list[type[Request]] = [Request]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {str(kind.__struct_config__.tag): kind for kind in kinds if not kind.__name__.startswith("_")}


def passes_on(message: Message) -> bool:
    """Whether the session of a rank passes a request on unread."""
    return _table().get(message["command"], Request).at_rank is Request.at_rank


def read(message: Message) -> Request:
    """Return what is asked. Raises UsageError: an argument is not that of the protocol; the text says which."""
    kind = _table().get(message["command"], Request)
    try:
        # Not strict: clients write a number as a text.
        return msgspec.convert(arguments_of(message), kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{message['command']}: the arguments are not valid DAP ({error})") from None
