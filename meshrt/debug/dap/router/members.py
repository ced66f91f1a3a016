"""The ranks of a session in which ranks are threads: what is known and printed of each; questions to all engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from meshrt.debug.dap.router.asking import ask_each
from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.rows import RUNNING, SILENT, Place
from meshrt.debug.dap.wire import Fields

__all__ = ["SECONDS", "Member", "Printed", "Shown", "ask_all"]

#: Seconds that an engine has for an answer: a rank in C code does not answer.
SECONDS = 10.0
#: Characters of a line that are kept back while it has no end; it is ended then.
_MOST = 4096


class Printed:
    """What one rank prints. Pure.

    Args:
        whose: Returns the prefix of each line.
    """

    def __init__(self, whose: Callable[[], str]) -> None:
        self._whose = whose
        #: The lines that have no end yet, by stream.
        self._begun: dict[str, str] = {}

    def add(self, stream: str, text: str) -> str:
        """Take what has been written to a stream, in parts of any length; return what is to be shown now."""
        *lines, rest = (self._begun.pop(stream, "") + text).split("\n")
        if len(rest) >= _MOST:
            lines, rest = [*lines, rest], ""
        if rest:
            self._begun[stream] = rest
        return "".join(f"{self._whose() if line.strip() else ''}{line}\n" for line in lines)

    def rest(self) -> list[tuple[str, str]]:
        """Return what lacks an end, with its stream: a prompt, or the last words of a rank. It is ended now."""
        begun, self._begun = self._begun, {}
        return [(stream, f"{self._whose()}{text}\n") for stream, text in begun.items()]


@dataclass(slots=True, eq=False)
class Member:
    """A rank of such a session. On the router's loop."""

    rank: Rank
    link: RankLink
    names: Names
    #: Names of its threads, as its engine knows them.
    threads: dict[int, str] = field(default_factory=lambda: {1: "MainThread"})
    #: Where it is stopped; `RUNNING` or `SILENT` otherwise.
    place: Place = RUNNING
    #: It has all settings.
    ready: bool = False
    printed: Printed = field(init=False)

    def __post_init__(self) -> None:
        self.printed = Printed(lambda: f"{self.called}: ")

    @property
    def called(self) -> str:
        """Its short name: ``rank 3``."""
        return self.names.of([self.rank.key])

    @property
    def is_shown(self) -> bool:
        """Whether the IDE knows of it."""
        return self.ready or self.place == SILENT

    @property
    def thread(self) -> int:
        """The stopped thread, or the main thread if none is stopped."""
        return next(iter(self.link.standing), 1)


class Shown(Protocol):
    """What an IDE sees instead of ranks: a thread for each, or one for each class of them. On the router's loop."""

    def begin(self) -> None:
        """The IDE has set what it sets at first."""

    async def threads(self) -> list[Fields]:
        """Return the threads, as the request of this name is answered."""

    def at(self, number: int) -> list[tuple[Member, int]] | None:
        """Return the ranks of a thread, and the number of the thread in each rank; None if there is no such thread."""

    def silent(self, member: Member) -> None:
        """A rank that is to be attached to does not answer: it is shown as such until it comes."""

    def came(self, member: Member) -> None:
        """A rank is attached to later than the others."""

    def left(self, member: Member) -> None:
        """A rank has ended."""

    def thread(self, member: Member, reason: str, thread: int) -> None:
        """A thread of a rank has started or exited."""

    def stopped(self, member: Member, thread: int, why: Fields) -> None:
        """A thread of a rank has stopped. ``why`` is the event body, without the number of the thread for the IDE."""

    def continued(self, member: Member, thread: int) -> None:
        """A thread of a rank has resumed by itself."""

    def runs(self, member: Member) -> None:
        """A rank has resumed."""

    def close(self) -> None:
        """The session is over."""


async def ask_all(
    members: Iterable[Member], command: str, arguments: Fields, seconds: float | None = None
) -> list[tuple[Member, Fields]]:
    """Ask the engines of those that are ready; returns the answers of those that answer within ``seconds``."""
    asks = {member: member.link.request(command, arguments) for member in members if member.ready}
    return list((await ask_each(asks, seconds)).said.items())
