"""The control tree as the script's own calls see it (`meshrt.transport.tree.ProgramTree`): the root is the top."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from meshrt.errors import UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import Registry
from meshrt.mesh.restarts import Restarts
from meshrt.selection import Shape
from meshrt.transport.connecting import Opened, Relay
from meshrt.transport.driver import Driver
from meshrt.wire.addresses import RankAddress
from meshrt.wire.operations import Unhandled

__all__ = ["Background", "RootTree"]

A = TypeVar("A", bound=Data)


class RootTree:
    """The tree of one root. Any thread.

    Args:
        registry, restarts, loop: Those of the root.

    Attributes:
        on_told: Called on the loop when a watcher was told at once.
        on_switch: Called on the loop: the links are driven from there, or no longer.
        on_unhandled: Called with an error of this process that no caller waits for.
    """

    def __init__(self, registry: Registry, restarts: Restarts, loop: RootLoop) -> None:
        self._registry = registry
        self._restarts = restarts
        self._loop = loop
        self.on_told: list[Callable[[], None]] = []
        self.on_switch: list[Callable[[bool], None]] = []
        self.on_unhandled: list[Callable[[Unhandled], None]] = []
        #: Has a rank connect to the script, as `ProgramTree.relay`. On the loop.
        self.on_relay: list[Relay] = []
        # See `meshrt.transport.tree`.
        self.when_born = registry.when_born
        self.when_restarted = registry.when_restarted
        self.call_later = loop.post_later

    def watch(self, mesh_id: str, rank: int, callback: Callable[[Fate], None]) -> None:
        """Call back when a rank ends."""
        if self._registry.watch(mesh_id, rank, callback):
            for told in self.on_told:
                self._loop.post(told)

    def actor_spawned(self, mesh_id: str, actor: str, view: Shape, *, owned: bool = True) -> None:
        """An actor is about to be built on a view of a mesh; by the script, if it is ``owned``."""
        self._registry.actor_spawned(mesh_id, actor, view)

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        """Allow ranks to be started again."""
        self._restarts.allow(mesh_id, ranks, actor, count, ("", 0))

    def switch(self, on: bool) -> None:
        """Drive the links from the loop, or no longer."""
        for switch in self.on_switch:
            self._loop.post(functools.partial(switch, on))

    def ask(self, operation: Operation[A], timeout: float) -> A:
        """The root sends no requests to itself."""
        raise UsageError(f"{operation.name()} is for ranks")

    def ask_later(self, operation: Operation[A], answered: Callable[[A | None, Exception | None], object]) -> None:
        """As `ask`."""
        raise UsageError(f"{operation.name()} is for ranks")

    def relay(self, address: RankAddress, why: str, opened: Opened) -> None:
        """Have a rank connect to this process."""
        for relay in self.on_relay:
            self._loop.post(functools.partial(relay, address, why, opened))

    def unhandled(self, report: Unhandled) -> None:
        """Report an error of this process that no caller waits for."""
        for told in self.on_unhandled:
            told(report)


class Background:
    """The links of the root, driven from its loop while no thread of the script waits for them. On the loop.

    Args:
        tree: That of the driver, which asks for it.
        driver: Has the links.
        loop: Drives them.
    """

    def __init__(self, tree: RootTree, driver: Driver, loop: RootLoop) -> None:
        self._driver = driver
        self._loop = loop
        self._driving = False
        tree.on_told.append(driver.lost.fail_pending)
        tree.on_switch.append(self.drive)
        loop.on_end.append(lambda: self.drive(False))

    def drive(self, on: bool) -> None:
        """Drive them, or no longer; twice is fine."""
        if on != self._driving and not self._driver.closed:
            self._driving = on
            if on:
                self._loop.running.add_reader(self._driver.fileno(), self._driver.poll_nowait)
            else:
                self._loop.running.remove_reader(self._driver.fileno())
