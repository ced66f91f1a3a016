"""The memory limit of a rank, with a process that has as much memory as the test says."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.memory import limit as module
from meshrt.memory.limit import Limit
from tests.unit.memory.documents import MIB

COUNT = 1000 * MIB


class Process:
    """A process with a limit: ``used`` bytes, the limits that were set, and the threads that were started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.used = 100 * MIB
        self.limits: list[int] = []
        self.threads: list[Callable[[], None]] = []
        self.while_it_writes: Callable[[], None] = lambda: None
        monkeypatch.setattr(hooks, "pulse", [])
        monkeypatch.setattr(hooks, "endpoint_error", [])
        monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: self.limits.append(limits[0]))
        monkeypatch.setattr(module, "private", lambda _pid: self.used)
        monkeypatch.setattr(module, "RuntimeThread", self._thread)
        monkeypatch.setattr(module, "plain", lambda _document: {})
        monkeypatch.setattr(Limit, "_document", lambda *_asked: None)
        facts = {"pid": 7, "mesh_name": "m", "mesh_id": "id", "rank": 0, "keep_file": self._keep_file}
        Limit(cast(RankServices, SimpleNamespace(**facts)), COUNT)

    def _thread(self, *, target: Callable[..., None], args: tuple[Any, ...], **_more: Any) -> Any:
        return SimpleNamespace(start=lambda: self.threads.append(lambda: target(*args)))

    def _keep_file(self, name: str, _text: str, *, durable: bool) -> Path:
        assert durable
        self.while_it_writes()
        return Path(name)

    def pulse(self) -> None:
        hooks.pulse[0]()

    def fail(self) -> None:
        hooks.endpoint_error[0](cast(EndpointCall, None), MemoryError())


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Process:
    return Process(monkeypatch, tmp_path)


def test_a_process_near_its_limit_writes_one_file(process: Process) -> None:
    process.pulse()
    assert not process.threads and process.limits == [COUNT]
    process.used = 950 * MIB
    process.pulse()
    assert len(process.threads) == 1 and process.limits[-1] > COUNT
    process.threads[0]()
    process.pulse()
    assert len(process.threads) == 1 and process.limits[-1] == COUNT


def test_a_file_that_is_being_written_keeps_its_room(process: Process) -> None:
    """The process comes near its limit and over it between two pulses: the next one comes while the file is written."""
    process.used = 995 * MIB
    room = []

    def pulse() -> None:
        before = process.limits[-1]
        process.pulse()
        room.append((before, process.limits[-1]))

    process.while_it_writes = pulse
    process.fail()
    ((before, after),) = room
    assert before == after > COUNT + 200 * MIB and not process.threads
    process.pulse()
    assert len(process.threads) == 1
