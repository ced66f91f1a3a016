"""Evidence of the kernel's out-of-memory killer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from meshrt.host.oom import OutOfMemory
from meshrt.store import cgroup


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group of version 2, as the kernel shows it."""
    (tmp_path / "cgroup").write_text("0::/job\n")
    (tmp_path / "job").mkdir()
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", str(tmp_path / "cgroup"))
    monkeypatch.setattr(cgroup, "_V2", str(tmp_path))
    file = tmp_path / "job" / "memory.events"
    file.write_text("low 0\noom 0\noom_kill 0\n")
    return file


def test_every_kill_is_put_down_to_one_process(counter: Path) -> None:
    memory = OutOfMemory()
    assert memory.evidence() == ""
    counter.write_text("low 0\noom 2\noom_kill 2\n")
    assert [bool(memory.evidence()) for _ in range(3)] == [True, True, False]
    assert "oom_kill counter" in ((counter.write_text("oom_kill 3\n") and memory.evidence()) or "")


def test_a_kill_long_ago_is_no_evidence(counter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = OutOfMemory()
    counter.write_text("oom_kill 1\n")
    memory.look()
    now = time.monotonic()
    monkeypatch.setattr("meshrt.host.oom.time.monotonic", lambda: now + 60)
    memory.look()
    assert memory.evidence() == ""


def test_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup").write_text("5:cpu:/\n4:memory:/job\n0::/\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", str(tmp_path / "cgroup"))
    monkeypatch.setattr(cgroup, "_V1", str(tmp_path))
    memory = OutOfMemory()
    (tmp_path / "job" / "memory.oom_control").write_text("oom_kill 8\n")
    assert memory.evidence() != ""


def test_where_nothing_can_be_read_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", str(tmp_path / "none"))
    assert OutOfMemory().evidence() == ""
    (tmp_path / "garbage").write_text("0::/nowhere\n")
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", str(tmp_path / "garbage"))
    memory = OutOfMemory()
    memory.look()
    assert memory.evidence() == ""
