"""The control tree as the script's own calls see it (`meshrt.transport.tree.ProgramTree`): the root is the top."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.transport.fate import Fate

if TYPE_CHECKING:
    from meshrt.mesh.root import Root

__all__ = ["RootTree"]


class RootTree:
    """The tree of ``root``. Any thread."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._driving = False

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back when a rank ends."""
        if self._root.registry.watch(mesh_id, rank, callback):
            self._root.post(self._root.driver.lost.fail_pending)

    def when_born(self, mesh_id: str, rank: int, callback: Callable[[], None]) -> None:
        """Call back when a rank listens."""
        self._root.registry.when_born(mesh_id, rank, callback)

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        """Allow ranks to be started again."""
        self._root.restarts.allow(mesh_id, ranks, actor, count, ("", 0))

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        """Call back when a rank was started again."""
        self._root.registry.when_restarted(mesh_id, rank, actor, callback)

    def switch(self, on: bool) -> None:
        """Drive the links from the loop, or no longer."""
        self._root.post(lambda: self.drive(on))

    def drive(self, on: bool) -> None:
        """As `switch`, at once. On the loop."""
        driver, loop = self._root.driver, self._root.loop
        if on != self._driving and not driver.closed:
            self._driving = on
            if on:
                loop.add_reader(driver.fileno(), driver.poll_nowait)
            else:
                loop.remove_reader(driver.fileno())

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call ``function`` on the loop after ``seconds``."""
        self._root.post(lambda: self._root.loop.call_later(seconds, function))

    def request_root(self, operation: str, body: Body, timeout: float) -> Body:
        """The root asks itself nothing."""
        raise UsageError(f"{operation} is for ranks")

    def ask_root(self, operation: str, body: Body, answered: Callable[[Body | None, str], None]) -> None:
        """As `request_root`."""
        raise UsageError(f"{operation} is for ranks")

    def unhandled(self, body: Body) -> None:
        """Report an error of this process that no caller waits for."""
        self._root.on_own_actor({"t": "ev", "ev": "unhandled", "body": body})
