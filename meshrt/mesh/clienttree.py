"""The control tree as a process sees it that is no part of the program: its root is asked as terminals ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from meshrt.errors import UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation, answers_of
from meshrt.selection import Shape
from meshrt.transport.background import BackgroundThread
from meshrt.transport.connecting import Opened
from meshrt.transport.driver import Driver
from meshrt.transport.tools import ToolConnection
from meshrt.wire.addresses import HostAddress, RankAddress
from meshrt.wire.operations import Born, Ended, Unhandled, Watch, WhenBorn

__all__ = ["ClientTree"]

A = TypeVar("A", bound=Data)


class ClientTree:
    """See `meshrt.transport.tree.ProgramTree`. Any thread.

    Args:
        tools: The connection to the root.
        background: Reads the links while no thread waits.
        why_ended: Says what has become of the connection, once it has ended.
    """

    def __init__(self, tools: ToolConnection, background: BackgroundThread, why_ended: Callable[[], str]) -> None:
        self._tools = tools
        self._why_ended = why_ended
        #: Set when it is made.
        self.driver: Driver
        self.call_later = background.call_later
        self.switch = background.switch

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[HostAddress | None], None]) -> None:
        """Call back when a rank listens, or has ended."""

        def answered(answer: Born | None, _error: Exception | None) -> None:
            callback(None if answer is None else answer.host)

        self.ask_later(WhenBorn(mesh_id, rank), answered)

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back with the fate of a rank, or of the connection to the program."""

        def answered(answer: Ended | None, _error: Exception | None) -> None:
            callback(Fate("program", hint=self._why_ended()) if answer is None else answer.fate)
            self.driver.lost.fail_pending()

        self.ask_later(Watch(mesh_id, rank), answered)

    def ask(self, operation: Operation[A], timeout: float) -> A:
        """Ask the root and wait."""
        return self._tools.ask(operation, timeout)

    def ask_later(self, operation: Operation[A], answered: Callable[[A | None, Exception | None], object]) -> None:
        """Ask the root."""
        try:
            self._tools.begin(operation, answers_of(operation, answered))
        except OSError as error:
            answered(None, error)

    def relay(self, address: RankAddress, why: str, opened: Opened) -> None:
        """There are ways by the root for its own ranks only."""
        opened(ConnectionError(f"{address} cannot be reached from here: {why}"))

    def actor_spawned(self, mesh_id: str, actor: str, view: Shape, *, owned: bool = True) -> None:
        """It owns nothing of the program."""
        raise UsageError("only the program of a mesh can start actors on it")

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        """As `actor_spawned`."""
        raise UsageError("only the program of a rank can restart it")

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        """As `actor_spawned`."""
        raise UsageError("only the program of a rank can restart it")

    def unhandled(self, report: Unhandled) -> None:
        """As `actor_spawned`."""
        raise UsageError("only the program of an actor can report its errors")
