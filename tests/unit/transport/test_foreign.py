"""What is seen of processes that meshrt has not started, and what it says of one that it may not look into."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.transport import foreign
from meshrt.transport.foreign import (
    check_processes,
    command_of,
    may_look,
    owner_of,
    python_of,
    refuses_scripts,
    words_of,
)


@contextmanager
def sleeping(*options: str, **variables: str) -> Iterator[int]:
    """A Python that waits, whose interpreter has begun."""
    command = [sys.executable, *options, "-c", "print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env={**os.environ, **variables}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


def test_a_python_process() -> None:
    with sleeping() as pid:
        check_processes([pid])
        assert python_of(pid) == f"{sys.version_info[0]}.{sys.version_info[1]}"
        assert owner_of(pid) == os.geteuid()
        assert words_of(pid)[-2] == "-c" and command_of(pid).endswith("-c 'print(flush=True); input()'")


def test_one_that_is_none() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        assert python_of(process.pid) == ""
        process.kill()
        while (state := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)) is None:
            pass
        assert state.si_pid == process.pid
        with pytest.raises(UsageError, match=f"PID {process.pid} has ended, but its parent has not reaped it"):
            check_processes([process.pid])


def test_one_that_has_ended() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    pid = process.pid
    with pytest.raises(UsageError, match=f"PID {pid}: there is no such process"):
        check_processes([pid])
    assert (python_of(pid), owner_of(pid), words_of(pid), command_of(pid)) == ("", None, [], "")


def test_twice() -> None:
    with pytest.raises(UsageError, match="is given twice"):
        check_processes([os.getpid(), os.getpid()])


@pytest.mark.parametrize(
    ("options", "variables", "refuses"),
    [
        ((), {}, False),
        (("-X", "disable-remote-debug"), {}, True),
        (("-Xdisable-remote-debug",), {}, True),
        ((), {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, True),
        ((), {"PYTHON_DISABLE_REMOTE_DEBUG": ""}, False),
        (("-E",), {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, False),
    ],
)
def test_whether_it_runs_scripts(options: tuple[str, ...], variables: dict[str, str], refuses: bool) -> None:
    with sleeping(*options, **variables) as pid:
        assert refuses_scripts(pid) is refuses


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        ("1", "as kernel.yama.ptrace_scope is 1; or run, as root, sysctl kernel.yama.ptrace_scope=0"),
        ("2", "requires CAP_SYS_PTRACE, as kernel.yama.ptrace_scope is 2"),
        ("3", "no process has access to PID"),
        ("0", "--cap-add SYS_PTRACE"),
        (None, "the process has changed its user"),
    ],
)
def test_what_it_takes(scope: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_YAMA", tmp_path / "ptrace_scope")
    if scope is not None:
        (tmp_path / "ptrace_scope").write_text(f"{scope}\n")
    assert says in may_look(os.getpid())


def test_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "owner_of", lambda pid: 987_654_321)
    assert may_look(7).startswith("PID 7 belongs to the user number 987654321: ")
