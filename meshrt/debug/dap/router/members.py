"""The ranks of a session in which ranks are threads, and questions to all of their engines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from meshrt.debug.dap.router.asking import ask_each
from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.printed import Printed
from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.rows import RUNNING, SILENT, Place

__all__ = ["SECONDS", "Member", "Shown", "ask_all"]

#: Seconds that an engine has for an answer: a rank in C code does not answer.
SECONDS = 10.0


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

    async def threads(self) -> list[dict[str, Any]]:
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

    def stopped(self, member: Member, thread: int, why: dict[str, Any]) -> None:
        """A thread of a rank has stopped. ``why`` is the event body, without the number of the thread for the IDE."""

    def continued(self, member: Member, thread: int) -> None:
        """A thread of a rank has resumed by itself."""

    def runs(self, member: Member) -> None:
        """A rank has resumed."""

    def close(self) -> None:
        """The session is over."""


async def ask_all(
    members: Iterable[Member], command: str, arguments: dict[str, Any], seconds: float | None = None
) -> list[tuple[Member, dict[str, Any]]]:
    """Ask the engines of those that are ready; returns the answers of those that answer within ``seconds``."""
    asks = {member: member.link.request(command, arguments) for member in members if member.ready}
    return list((await ask_each(asks, seconds)).said.items())
