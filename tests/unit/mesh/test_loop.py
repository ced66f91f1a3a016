"""The life of the root's loop: what runs when, and who is told that it has failed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator

import pytest
import uvloop

from meshrt.mesh.loop import RootLoop
from tests.support.waiting import wait_until


@pytest.fixture
def loop() -> Iterator[RootLoop]:
    made = RootLoop()
    yield made
    made.end()


def noting(seen: list[str], what: str) -> Callable[[], None]:
    return lambda: seen.append(f"{what} on {'another' if threading.current_thread() is not MAIN else 'this'} thread")


MAIN = threading.current_thread()


def test_what_the_parts_have_asked_for_runs_in_order(loop: RootLoop) -> None:
    seen: list[str] = []

    async def run() -> None:
        seen.append("run")

    loop.on_start.append(noting(seen, "start"))
    loop.on_run.append(run)
    loop.on_end += [noting(seen, "end"), lambda: seen.append("last")]
    loop.post(noting(seen, "posted"))
    assert seen == []
    with pytest.raises(RuntimeError, match="does not run yet"):
        _ = loop.running
    loop.begin()
    loop.begin()
    wait_until(lambda: len(seen) == 3, 20)
    loop.end()
    assert seen == ["start on this thread", "run", "posted on another thread", "end on another thread", "last"]
    assert loop.has_begun and loop.failure == ""


def test_what_comes_after_its_end_is_left_out(loop: RootLoop) -> None:
    seen: list[str] = []
    loop.begin()
    loop.end()
    loop.post(lambda: seen.append("too late"))
    loop.end()
    assert seen == []


def test_it_knows_its_thread_and_runs_what_is_due_later(loop: RootLoop) -> None:
    seen: list[bool] = []
    loop.post_later(0.01, lambda: seen.append(loop.is_this_thread()))
    loop.begin()
    wait_until(lambda: seen, 20)
    assert seen == [True] and not loop.is_this_thread()


def test_it_goes_on_for_what_is_to_be_written_still(loop: RootLoop) -> None:
    seen: list[str] = []
    loop.on_end += [lambda: loop.call_later(0.01, lambda: seen.append("written")), lambda: loop.linger(0.5)]
    loop.begin()
    wait_until(lambda: loop.has_begun, 20)
    loop.end()
    assert seen == ["written"]


def test_a_part_that_cannot_begin_is_a_failure(loop: RootLoop, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def run() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    loop.on_run.append(run)
    loop.on_failure += [lambda: seen.append(loop.failure), lambda: seen.append("second")]
    loop.post(lambda: seen.append("posted"))
    loop.begin()
    wait_until(lambda: len(seen) == 2, 20)
    loop.end()
    why = "the runtime failed in this process: OSError: [Errno 24] Too many open files"
    assert seen == [why, "second"] and not loop.has_begun
    assert [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"] == [why]


def test_a_loop_that_cannot_be_made_is_a_failure(loop: RootLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(uvloop, "new_event_loop", refuse)
    failed = threading.Event()
    loop.on_failure.append(failed.set)
    loop.begin()
    assert failed.wait(20)
    assert loop.failure.endswith("Too many open files") and not loop.has_begun
