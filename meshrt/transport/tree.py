"""The control tree as a process of the program sees it: starts and ends of ranks, restarts, requests to the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation
from meshrt.selection import Shape
from meshrt.transport.connecting import Opened
from meshrt.wire.addresses import HostAddress, RankAddress
from meshrt.wire.operations import Unhandled

__all__ = ["ProgramTree", "Tree"]

A = TypeVar("A", bound=Data)


class Tree(Protocol):
    """The control tree, as far as the links need it."""

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[HostAddress | None], None]) -> None:
        """Call back when a rank listens (at once if it does, or has ended), with its host if it is known.

        Any thread.
        """

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back with a rank's fate when it ends (at once if it has), then call `LostLinks.fail_pending`.

        Any thread.
        """

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call ``function`` after ``seconds``, on a thread that must not be blocked. Any thread."""

    def switch(self, on: bool) -> None:
        """Begin or stop calling `Driver.poll_nowait`, on a background thread, when `Driver.fileno` is ready.

        Any thread.
        """


class ProgramTree(Tree, Protocol):
    """The control tree, as far as the calls of a process need it."""

    def actor_spawned(self, mesh_id: str, actor: str, view: Shape, *, owned: bool = True) -> None:
        """Tell the root that an actor is about to be built on a view of a mesh. Any thread.

        Args:
            owned: The actor that runs on this thread owns it (in the script: the script).
        """

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        """Allow ranks to be started again, as far as an actor is concerned. Any thread."""

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        """Call back, once, when the rank was started again and is to have the actor: its incarnation, and how the one
        before has ended. With incarnation 0 when it will not be: the mesh has ended."""

    def ask(self, operation: Operation[A], timeout: float) -> A:
        """Ask the root and wait. Not from the thread that serves the tree. Raises TimeoutError, MeshError."""

    def ask_later(self, operation: Operation[A], answered: Callable[[A | None, Exception | None], object]) -> None:
        """Ask the root; ``answered(answer, None)`` or ``answered(None, error)`` comes later, on another thread."""

    def relay(self, address: RankAddress, why: str, opened: Opened) -> None:
        """Ask the root for a way to a rank, see `meshrt.transport.connecting.Relay`. Any thread."""

    def unhandled(self, report: Unhandled) -> None:
        """Tell the root of an error that no caller waits for. Any thread."""
