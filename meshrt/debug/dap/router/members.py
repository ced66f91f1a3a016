"""The ranks of a session in which ranks are threads: what is known and printed of each; questions to all engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from meshrt.debug.dap.router.channels import RankLink, ask_each
from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.wire import Fields

__all__ = ["RUNNING", "SECONDS", "SILENT", "WHY_NOT", "Member", "Place", "Printed", "ask_all"]

#: Seconds that an engine has for an answer: a rank in C code does not answer.
SECONDS = 10.0
#: Why it may give none.
WHY_NOT = "the rank is in C code or evaluating (mesh pause interrupts the evaluation)"
#: (file, line, function) of each stack frame, the outermost first. `RUNNING`: not stopped. `SILENT`: no answer.
Place = tuple[tuple[str, int, str], ...]
RUNNING: Place = ()
SILENT: Place = (("", -1, ""),)
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
        return next(iter(self.link.stops), 1)


async def ask_all(
    members: Iterable[Member], command: str, arguments: Fields, seconds: float | None = None
) -> list[tuple[Member, Fields]]:
    """Ask the engines of those that are ready; returns the answers of those that answer within ``seconds``."""
    asks = {member: member.link.request(command, arguments) for member in members if member.ready}
    return list((await ask_each(asks, seconds)).said.items())
