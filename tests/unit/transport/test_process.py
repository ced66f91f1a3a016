"""What a process has of a program, and that a forked child has none of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from meshrt.errors import ForkedMeshError, UsageError
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation
from meshrt.selection import Shape
from meshrt.transport import process
from meshrt.transport.connecting import Opened
from meshrt.transport.process import ProcessRuntime, current_runtime, has_runtime, set_runtime
from meshrt.wire.addresses import HostAddress, RankAddress
from meshrt.wire.operations import Unhandled
from tests.unit.transport.fake_rank import FakeTree

A = TypeVar("A", bound=Data)


class Tree(FakeTree):
    """The rest of what a process asks of the tree."""

    def ask(self, operation: Operation[A], timeout: float) -> A:
        return operation.read_answer({})

    def ask_later(self, operation: Operation[A], answered: Callable[[A | None, Exception | None], object]) -> None:
        answered(operation.read_answer({}), None)

    def actor_spawned(self, mesh_id: str, actor: str, view: Shape, *, owned: bool = True) -> None:
        pass

    def allow_restarts(self, mesh_id: str, ranks: list[int], actor: str, count: int) -> None:
        pass

    def when_restarted(self, mesh_id: str, rank: int, actor: str, callback: Callable[[int, Fate], None]) -> None:
        pass

    def unhandled(self, report: Unhandled) -> None:
        pass

    def relay(self, address: RankAddress, why: str, opened: Opened) -> None:
        pass


@pytest.fixture
def runtime() -> Iterator[ProcessRuntime]:
    assert not has_runtime()
    made = ProcessRuntime("run", HostAddress(0, 0, b"/nowhere"), b"s" * 32, Tree(), is_root=True)
    set_runtime(made)
    yield made
    set_runtime(None)
    made.close()


def in_child(check: Callable[[], object]) -> int:
    """Fork, run ``check`` there; returns 0 if it was true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_without_a_mesh_there_is_none() -> None:
    set_runtime(None)  # a test before this one may have ended some
    with pytest.raises(UsageError, match="make a mesh with proc_mesh"):
        current_runtime()


def test_a_forked_child_is_told_and_its_copies_are_closed(runtime: ProcessRuntime) -> None:
    ran: list[int] = []
    set_runtime(runtime, on_fork=lambda: ran.append(1))
    epoll = runtime.driver.fileno()

    def check() -> bool:
        try:
            current_runtime()
        except ForkedMeshError as error:
            told = "was forked" in str(error)
        else:
            told = False
        try:
            os.fstat(epoll)
        except OSError:
            closed = True
        else:
            closed = False
        return told and closed and not has_runtime() and ran == [1]

    assert in_child(check) == 0
    os.fstat(epoll)
    assert current_runtime() is runtime and not ran


def test_a_fork_before_any_mesh_is_a_process_like_any_other() -> None:
    assert in_child(lambda: not has_runtime() and not process._forked) == 0
