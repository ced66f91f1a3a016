"""The directories of a program: private, verified, reclaimed, and short enough."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.transport import directories


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place that does not exist yet; its path is short, as those of sockets must be."""
    parent = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(parent / "r"))
    yield parent / "r"
    shutil.rmtree(parent)


def publish(directory: Path, **facts: Any) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / "program.json").write_text(json.dumps(facts))


def ended_process() -> tuple[int, str]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = directories.process_start(process.pid)
    return process.pid, start


def test_it_is_made_private(base: Path) -> None:
    path = directories.create_runtime("run1")
    assert path == base / "run1"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (base, path)] == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o750, 0o777, 0o1777])
def test_an_open_one_is_refused(base: Path, mode: int) -> None:
    base.mkdir()
    base.chmod(mode)
    with pytest.raises(UsageError, match=rf"is open to other users \(mode {mode:o}\); chmod 700 it"):
        directories.create_runtime("run1")
    assert not list(base.iterdir())


def test_a_link_is_refused_wherever_it_leads(base: Path) -> None:
    (base.parent / "real").mkdir(mode=0o700)
    base.symlink_to(base.parent / "real")
    with pytest.raises(UsageError, match="is not a directory"):
        directories.create_runtime("run1")
    base.unlink()
    base.symlink_to("nowhere")
    with pytest.raises(UsageError, match="is not a directory"):
        directories.create_runtime("run1")


def test_a_file_is_refused(base: Path) -> None:
    base.touch(mode=0o600)
    with pytest.raises(UsageError, match="is not a directory"):
        directories.create_runtime("run1")


def test_one_of_another_user_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.mkdir(mode=0o700)
    owner = base.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UsageError, match=f"belongs to uid {owner}, not to you"):
        directories.create_runtime("run1")


def test_too_long_a_path_is_refused_and_nothing_stays(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = base.parent / ("x" * 60)
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(long))
    with pytest.raises(UsageError, match="too long for socket paths"):
        directories.create_runtime("run1")
    assert not list(long.iterdir())


def test_what_dead_programs_left_is_removed_and_nothing_else(base: Path) -> None:
    base.mkdir(mode=0o700)
    pid, start = ended_process()
    own = directories.process_start(os.getpid())
    publish(base / "ended", pid=pid, start=start)
    publish(base / "reused_pid", pid=os.getpid(), start="1")
    publish(base / "running", pid=os.getpid(), start=own)
    publish(base / "odd", pid="nonsense")
    (base / "being_made").mkdir()
    (base / "a_file").touch()
    directories.create_runtime("run1")
    assert {path.name for path in base.iterdir()} == {"running", "odd", "being_made", "a_file", "run1"}


def test_the_start_of_a_process_tells_it_from_its_successor() -> None:
    assert directories.process_start(os.getpid()).isdigit()
    assert directories.process_start(os.getpid()) == directories.process_start(os.getpid())
    pid, start = ended_process()
    assert start.isdigit() and directories.process_start(pid) == ""


def test_where_the_base_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MESHRT_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert directories.runtime_base() == tmp_path / "meshrt"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert directories.runtime_base() == Path(tempfile.gettempdir()) / f"meshrt-{os.geteuid()}"
    monkeypatch.delenv("MESHRT_RUNS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert directories.runs_base() == tmp_path / "meshrt" / "runs"


def test_run_directories_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_RUNS", str(tmp_path / "runs"))
    for index in range(directories.KEPT_RUNS + 5):
        (tmp_path / "runs" / f"2020010{index // 10}-00000{index % 10}-old").mkdir(parents=True)
    path = directories.create_run("new")
    assert path.name.endswith("-new") and stat.S_IMODE(path.stat().st_mode) == 0o700
    left = sorted(entry.name for entry in (tmp_path / "runs").iterdir())
    assert len(left) == directories.KEPT_RUNS + 1 and left[0] == "20200100-000005-old"


def test_a_run_directory_elsewhere_when_there_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").touch()
    monkeypatch.setenv("MESHRT_RUNS", str(tmp_path / "runs"))
    path = directories.create_run("new")
    try:
        assert path.parent == Path(tempfile.gettempdir()) and path.is_dir()
    finally:
        path.rmdir()


def test_a_small_file_is_there_whole_and_private(tmp_path: Path) -> None:
    directories.write_atomic(tmp_path / "token", "old")
    directories.write_atomic(tmp_path / "token", "new")
    assert (tmp_path / "token").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
