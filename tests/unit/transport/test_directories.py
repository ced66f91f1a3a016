"""The directories of a program: private, verified, reclaimed, and short enough."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.transport import directories, dirlock
from tests.support.waiting import wait_until


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place that does not exist yet; its path is short, as those of sockets must be."""
    parent = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(parent / "r"))
    yield parent / "r"
    shutil.rmtree(parent)


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    yield
    for path in tuple(dirlock._locks):
        dirlock.unlock(path)


def left_by_a_program(code: str) -> Path:
    """Run a program that takes a directory and ends; return what it prints."""
    script = f"import os\nfrom meshrt.transport import directories\n{code}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return Path(ran.stdout.strip())


def test_it_is_made_private(base: Path) -> None:
    path = directories.create_runtime("00000001")
    assert path == base / "p-00000001"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (base, path)] == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o750, 0o777, 0o1777])
def test_an_open_one_is_refused(base: Path, mode: int) -> None:
    base.mkdir()
    base.chmod(mode)
    with pytest.raises(UsageError, match=rf"is open to other users \(mode {mode:o}\); chmod 700 it"):
        directories.create_runtime("00000001")
    assert not list(base.iterdir())


def test_a_link_is_refused_wherever_it_leads(base: Path) -> None:
    (base.parent / "real").mkdir(mode=0o700)
    base.symlink_to(base.parent / "real")
    with pytest.raises(UsageError, match="is not a directory"):
        directories.create_runtime("00000001")
    base.unlink()
    base.symlink_to("nowhere")
    with pytest.raises(UsageError, match="is not a directory"):
        directories.create_runtime("00000001")


def test_a_file_is_refused(base: Path) -> None:
    base.touch(mode=0o600)
    with pytest.raises(UsageError, match="is not a directory"):
        directories.create_runtime("00000001")


def test_one_of_another_user_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.mkdir(mode=0o700)
    owner = base.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(UsageError, match=f"belongs to uid {owner}, not to you"):
        directories.create_runtime("00000001")


def test_too_long_a_path_is_refused_and_nothing_stays(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = base.parent / ("x" * 60)
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(long))
    with pytest.raises(UsageError, match="too long for socket paths"):
        directories.create_runtime("00000001")
    assert not list(long.iterdir())


def test_what_dead_programs_left_is_removed_and_nothing_else(base: Path) -> None:
    ended = left_by_a_program("print(directories.create_runtime('00000002'), flush=True); os._exit(0)")
    assert ended.is_dir()
    running = directories.create_runtime("00000003")
    assert not ended.exists()
    foreign = [base / "thesis", base / "p-notours", base / "p-00000004", base / "p-00000005"]
    for path in foreign[:3]:
        path.mkdir()
    (base / "p-00000005").symlink_to("/")
    os.utime(base / "thesis", (0, 0))
    directories.create_runtime("00000001")
    names = {path.name for path in foreign} | {running.name, "p-00000001"}
    assert {path.name for path in base.iterdir()} == names
    os.utime(base / "p-00000004", (0, 0))  # its program never took it
    directories.create_runtime("00000006")
    assert {path.name for path in base.iterdir()} == names - {"p-00000004"} | {"p-00000006"}


def test_a_forked_child_does_not_keep_a_directory(base: Path) -> None:
    code = "path = directories.create_runtime('00000002')\nif os.fork(): print(path, flush=True); os._exit(0)\n"
    gate = base.parent / "gate"
    os.mkfifo(gate)
    with subprocess.Popen(
        [sys.executable, "-c", f"import os\nfrom meshrt.transport import directories\n{code}open({str(gate)!r})"],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        path = Path(program.stdout.readline().strip())
        program.wait(20)
        wait_until(lambda: not directories.in_use(path))  # the child lets go as soon as it runs
        gate.open("w").close()


def test_run_directories_are_kept_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("MESHRT_RUNS", str(runs))
    for index in range(directories.KEPT_RUNS + 5):
        (runs / f"2020010{index // 10}-00000{index % 10}-{index:08x}").mkdir(parents=True)
    for entry in runs.iterdir():
        os.utime(entry, (0, 0))
    (runs / "experiment").mkdir()
    held = runs / "20200100-000000-00000000"
    dirlock.lock(held)
    path = directories.create_run("0000ffff")
    assert path.name.endswith("-0000ffff") and stat.S_IMODE(path.stat().st_mode) == 0o700
    left = sorted(entry.name for entry in runs.iterdir())
    assert {held.name, "experiment", path.name} < set(left)
    assert len(left) == directories.KEPT_RUNS + 3


def test_failures_are_not_pushed_out_by_programs_that_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHRT_RUNS", str(tmp_path))
    failed = directories.KEPT_FAILED + 2
    names = [f"20200101-{index:06}-{index:08x}" for index in range(failed + directories.KEPT_RUNS + 3)]
    for index, name in enumerate(names):
        (tmp_path / name).mkdir()
        if index < failed:
            (tmp_path / name / "failure-1.json").touch()
        os.utime(tmp_path / name, (0, 0))
    made = directories.create_run("0000ffff")
    left = {entry.name for entry in tmp_path.iterdir()} - {made.name}
    assert left == {*names[2:failed], *names[-directories.KEPT_RUNS :]}


def test_programs_that_start_together_leave_each_others_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may look at any moment, such as just before the lock is locked."""
    looked: list[str] = []
    lock = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if not looked:
            looked.append("")
            looked[0] = "in use" if directories.in_use(tmp_path) else "nobody's"
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    dirlock.lock(tmp_path)
    assert looked == ["in use"] and directories.in_use(tmp_path) and directories.is_empty(tmp_path)


def test_a_run_directory_elsewhere_when_there_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").touch()
    monkeypatch.setenv("MESHRT_RUNS", str(tmp_path / "runs"))
    told: list[str] = []
    path = directories.create_run("new", told.append)
    try:
        assert path.parent == Path(tempfile.gettempdir()) and path.is_dir()
        (line,) = told
        assert f"{tmp_path / 'runs'} cannot be made: " in line and f"{path} is used instead" in line
        assert directories.command_name("new", path) == str(path)
        monkeypatch.setenv("MESHRT_RUNS", str(path.parent))
        assert directories.command_name("new", path) == "new"
    finally:
        directories.remove_tree(path)


def test_what_ended_programs_have_left_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESHRT_RUNS", str(tmp_path / "runs"))
    base = tmp_path / "runs"
    base.mkdir(mode=0o700)
    for index in range(6):
        run = base / f"20200101-00000{index}-0000000{index}"
        run.mkdir(mode=0o700)
        (run / ".lock").touch()
        (run / "m.0.log").write_bytes(b"x" * 1000)
    told: list[str] = []
    made = directories.create_run("0000ffff", told.append, 2500)
    left = sorted(path.name[-1] for path in base.iterdir() if path != made)
    assert left == ["4", "5"]
    (line,) = told
    assert "MESHRT_RUNS_LIMIT" in line and "4 of them removed, 20200101-000000-00000000 first" in line
    dirlock.end(made)
    other = directories.create_run("0000fffe", told.append, 0)
    assert set(base.iterdir()) == {other, made}, "the latest one is kept however large it is"
    dirlock.unlock(other)
