"""Nobody removes the directory of a program that lives, whatever was removed from it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from meshrt.transport import directories, dirlock, tools
from meshrt.transport.kernel import boot_id, pid_namespace, start_of

RUN_ID = "0000beef"
#: Takes its directories, as a program does, and ends when its standard input does.
PROGRAM = """
import json, os, sys
from meshrt.transport import directories, dirlock, tools
path, run = directories.create_runtime(sys.argv[1]), directories.create_run(sys.argv[1])
(path / "program.json").write_text(json.dumps(dirlock.identity()))
if "daemon" in sys.argv:
    os.closerange(3, 1000)
print(run, flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where programs of this test are; its path is short, as those of sockets must be."""
    parent = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(parent / "r"))
    monkeypatch.setenv("MESHRT_RUNS", str(parent / "runs"))
    yield parent / "r"
    for path in tuple(dirlock._locks):
        dirlock.unlock(path)
    shutil.rmtree(parent)


@contextmanager
def another_program(*arguments: str) -> Iterator[tuple[Path, Path]]:
    """A program that holds its directories; both of them."""
    command = [sys.executable, "-c", PROGRAM, RUN_ID, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        run = Path(program.stdout.readline().strip())
        yield Path(os.environ["MESHRT_RUNTIME_DIR"]) / f"p-{RUN_ID}", run


def is_left(path: Path) -> bool:
    """Whether the next program leaves a directory, all of whose times are old."""
    for entry in (*path.iterdir(), path):
        os.utime(entry, (0, 0))
    shutil.rmtree(directories.create_runtime("00000001"))
    return path.exists()


@pytest.mark.parametrize("how", ["the lock is removed", "both are gone", "descriptors are closed"])
def test_a_program_that_lives_keeps_its_directory(how: str) -> None:
    """The first as by a cleaner of temporary files, the last as a program does that becomes a daemon."""
    with another_program(*["daemon"] * (how != "the lock is removed")) as (path, run):
        if how != "descriptors are closed":
            (path / dirlock.LOCK).unlink()
            (run / dirlock.LOCK).unlink()
            os.utime(run, (0, 0))
        assert is_left(path) and directories.in_use(path) and directories.in_use(run)
    assert not directories.in_use(run)
    assert not is_left(path)


def test_the_lock_on_the_directory_is_enough() -> None:
    with another_program() as (path, _):
        for entry in path.iterdir():
            entry.unlink()
        assert is_left(path)
        descriptor = os.open(path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # what systemd-tmpfiles tries before it looks into a directory
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_what_cannot_be_looked_at_is_left_and_told(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without descriptors knows of no lock and of no file: that is not an end of the program."""

    def short(real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Any, *given: Any, **named: Any) -> Any:
            if RUN_ID in str(path):
                raise OSError(number, os.strerror(number), path)
            return real(path, *given, **named)

        return opening

    with another_program() as (path, run):
        os.utime(path, (0, 0))
        monkeypatch.setattr(os, "open", short(os.open))
        monkeypatch.setattr("builtins.open", short(open))
        for look in (lambda: dirlock.is_locked(path), lambda: directories.in_use(run), tools.programs):
            with pytest.raises(OSError, match=os.strerror(number)):
                look()
        assert is_left(path)
        monkeypatch.undo()
        assert path.exists()


@pytest.mark.parametrize("what", ["start", "boot", "pid"])
def test_a_pid_that_is_used_again_keeps_nothing(what: str) -> None:
    with another_program() as (path, _):
        facts = json.loads((path / dirlock.PROGRAM).read_text())
    if what != "pid":
        facts["pid"], facts["start"] = os.getpid(), start_of(os.getpid())
        (path / dirlock.PROGRAM).write_text(json.dumps(facts))
        assert is_left(path), "this process lives"
        facts[what] = {"start": facts["start"] - 1, "boot": "another"}[what]
        (path / dirlock.PROGRAM).write_text(json.dumps(facts))
    assert not is_left(path)


def test_a_directory_that_is_taken_while_it_is_looked_at_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs start at once: one looks for directories that are left behind, the other makes its own."""
    base = Path(os.environ["MESHRT_RUNTIME_DIR"])
    base.mkdir(mode=0o700)
    path = base / f"p-{RUN_ID}"
    path.mkdir(mode=0o700)
    stat = Path.stat

    def late(self: Path, **how: Any) -> os.stat_result:
        if self == path and not dirlock.owns(path):
            dirlock.lock(path)
        return stat(self, **how)

    monkeypatch.setattr(Path, "stat", late)
    assert dirlock.is_locked(path)


def test_what_cannot_be_looked_for_is_left_for_a_day() -> None:
    """A process of another container, say: its files are given new times while it lives."""
    facts = {"pid": 1, "start": 1, "boot": boot_id(), "pid_namespace": pid_namespace() + 1}
    assert dirlock.lives(facts, 3600) and not dirlock.lives(facts, 90000)


def test_what_a_program_of_another_machine_uses_is_left() -> None:
    """Where directories are shared, and its lock is not seen here. It sets new times while it lives."""
    with another_program() as (_, run):
        assert directories.in_use(run)
    facts = json.loads((run / dirlock.LOCK).read_text())
    assert not directories.in_use(run), "of this machine, and killed"
    (run / dirlock.LOCK).write_text(json.dumps({**facts, "boot": "another"}))
    assert directories.in_use(run)
    os.utime(run, (0, 0))
    assert not directories.in_use(run), "it has set no new times"


def test_a_program_that_has_ended_in_order_says_so() -> None:
    run = directories.create_run(RUN_ID)
    assert json.loads((run / dirlock.LOCK).read_text())["pid"] == os.getpid()
    dirlock.end(run)
    assert (run / dirlock.LOCK).read_text() == "" and not directories.in_use(run)
    dirlock.end(run)


def test_nonsense_in_the_file_keeps_nothing() -> None:
    for text in ("", "[]", '{"pid": "x"}', '{"pid": 1}', "{" * 100000, f'{{"pid": 1, "boot": "{boot_id()}"}}'):
        path = Path(os.environ["MESHRT_RUNTIME_DIR"]) / "p-0000abcd"
        path.mkdir(parents=True, mode=0o700)
        path.parent.chmod(0o700)
        (path / dirlock.PROGRAM).write_text(text)
        (path / dirlock.LOCK).touch()
        assert not is_left(path), text


def test_what_was_removed_is_made_again() -> None:
    path = directories.create_runtime(RUN_ID)
    assert not directories.repair(path)
    (path / dirlock.LOCK).unlink()
    assert directories.repair(path) and dirlock.owns(path) and not directories.repair(path)
    shutil.rmtree(path.parent)
    assert directories.repair(path) and dirlock.owns(path)
    assert directories.in_use(path) and path.parent.stat().st_mode & 0o777 == 0o700
    lock = dirlock._locks[path].file.descriptor
    os.close(lock)
    taken = os.open("/dev/null", os.O_RDONLY)  # of somebody else, with the same number
    assert taken == lock and not dirlock.owns(path) and directories.repair(path)
    assert os.fstat(taken)
    os.close(taken)


def test_a_place_that_somebody_has_taken_is_not_used() -> None:
    path = directories.create_runtime(RUN_ID)
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="other users can change"):
        directories.repair(path)
    assert not path.exists()


def test_files_are_given_new_times() -> None:
    path = directories.create_runtime(RUN_ID)
    (path / "file").touch()
    os.mkfifo(path / "socket")
    target = path.parent / "target"
    target.touch()
    os.utime(target, (0, 0))
    (path / "link").symlink_to(target)
    for entry in path.iterdir():
        os.utime(entry, (0, 0), follow_symlinks=False)
    os.utime(path, (0, 0))
    begun = time.time_ns() - 10**9
    dirlock.refresh(path)
    times = {entry.name: entry.lstat() for entry in (path, *path.iterdir())}
    assert all(facts.st_atime_ns >= begun for facts in times.values())
    assert {name for name, facts in times.items() if facts.st_mtime_ns >= begun} == {path.name, "socket", "link"}
    assert times["file"].st_mtime == 0, "when it was written is for people"
    assert target.stat().st_atime == 0, "what a link points to is not the program's"
