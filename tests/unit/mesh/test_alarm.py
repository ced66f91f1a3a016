"""Failures that the script is to be told of: what waits for its hook."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import meshrt
from meshrt.mesh import alarm as module
from meshrt.mesh.alarm import Alarm
from tests.support.waiting import wait_until


def test_a_hook_that_does_not_come_back_costs_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, heard, unseen = threading.Event(), list[object](), list[int]()

    def hook(failure: object) -> None:
        heard.append(failure)
        go_on.wait(20)

    monkeypatch.setattr(meshrt, "unhandled_fault_hook", hook)
    monkeypatch.setattr(module, "_WAITING_MAX", 10)
    driver: Any = SimpleNamespace(alert=lambda _at_wait: None)
    alarm = Alarm(driver, lambda _mesh_id: False)
    failures: list[Any] = [SimpleNamespace(errors=(), mesh_id="m") for _ in range(25)]
    for number, failure in enumerate(failures):
        alarm.add(failure, lambda number=number: unseen.append(number))  # type: ignore[misc]
    assert unseen == [*range(10, 25)], "they are reported at the end, as without a hook"
    go_on.set()
    wait_until(lambda: len(heard) == 10, 20, "the hook has heard the others")
    assert heard == failures[:10] and unseen == [*range(10, 25)]
