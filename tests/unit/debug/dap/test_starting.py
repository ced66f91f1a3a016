"""The router of the program itself: when it is started, and what is said if that fails."""

from __future__ import annotations

import queue
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.debug.dap import starting
from meshrt.debug.dap.starting import StartedRouters


class Services:
    """What is posted to the root's loop runs when the test says so."""

    run_id = "run"

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.call_soon = self.posted.append
        self.announce = self.said.put


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(starting, "current_runtime", lambda: SimpleNamespace(directory="/nonexistent"))
    return Services()


def refuse(*_: object, **__: object) -> None:
    raise OSError("no more processes")


def test_nothing_is_started_before_the_program_is_published(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", refuse)
    routers = StartedRouters(services)
    routers.listen(5678)
    routers.listen(5678)
    assert len(services.posted) == 1 and services.said.empty()


def test_a_process_that_cannot_be_started_is_told_and_tried_again(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", refuse)
    routers = StartedRouters(services)
    for _ in range(2):
        routers.listen(5678)
        services.posted.pop()()
        assert services.said.get(timeout=10) == "no IDE can attach at port 5678: no more processes"
