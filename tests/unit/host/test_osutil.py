"""What the kernel tells about processes, and what only it can do."""

from __future__ import annotations

import errno
import os
import resource
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from meshrt.host import osutil
from meshrt.host.child import keep_only
from meshrt.transport.kernel import kernel_state
from meshrt.transport.reserve import reserve
from tests.support.waiting import wait_until

WAITS = "input()"
#: Starts a child of its own, and waits.
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAITS!r}]); input()"


def in_child(work: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def nobody(_pid: int) -> bool:
    """No process is known by anything but its mark."""
    return False


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **env}))
        return started[-1]

    yield run
    for process in started:
        for pid in osutil.children_of(process.pid):
            psutil.Process(pid).kill()
        process.kill()
        process.communicate()


def test_children_are_found(start: Start) -> None:
    process = start(PARENT)
    wait_until(lambda: osutil.children_of(process.pid))
    (child,) = osutil.children_of(process.pid)
    assert psutil.Process(child).ppid() == process.pid
    assert process.pid in osutil.children_of(os.getpid())
    assert child not in osutil.children_of(os.getpid())


def test_of_a_process_that_is_gone_there_is_nothing(start: Start) -> None:
    process = start("pass")
    process.communicate()
    assert osutil.children_of(process.pid) == []


def test_only_a_child_is_killed_as_one(start: Start) -> None:
    process = start(PARENT)
    wait_until(lambda: osutil.children_of(process.pid))
    (grandchild,) = osutil.children_of(process.pid)
    assert not osutil.kill_child(os.getpid(), grandchild)
    assert not osutil.kill_child(os.getpid(), os.getpid())
    assert psutil.pid_exists(grandchild)
    assert osutil.kill_child(os.getpid(), process.pid)
    assert process.wait(10) == -9


def test_what_carries_the_mark_is_killed_and_nothing_else(start: Start) -> None:
    run_id = secrets.token_hex(8)
    marked = start(WAITS, **{osutil.RUN_VARIABLE: run_id})
    similar = start(WAITS, **{osutil.RUN_VARIABLE: run_id + "0"})
    mark = f"{osutil.RUN_VARIABLE}={run_id}".encode()
    wait_until(lambda: mark in Path(f"/proc/{marked.pid}/environ").read_bytes())
    assert osutil.kill_run(run_id, nobody) == 1
    assert marked.wait(10) == -9
    assert similar.poll() is None
    assert osutil.kill_run(run_id, nobody) == 0


def test_a_child_of_another_parent_than_expected_ends_at_once() -> None:
    def work() -> int:
        osutil.die_with_parent(1 if os.getppid() != 1 else 2)
        return 0

    assert in_child(work) == 1
    parent = os.getpid()

    def own_child() -> int:
        osutil.die_with_parent(parent)
        return 0

    assert in_child(own_child) == 0


def test_the_name_is_what_ps_shows() -> None:
    def work() -> int:
        osutil.set_name("mesh:a-long-name-of-a-mesh")
        return 0 if Path("/proc/self/comm").read_text() == "mesh:a-long-nam\n" else 1

    assert in_child(work) == 0


@pytest.mark.parametrize("text", ["meshrt: train rank 3 of train.py", "x" * 100_000, ""])
def test_the_command_line_is_what_ps_shows(text: str) -> None:
    def work() -> int:
        whole = Path("/proc/self/cmdline").read_bytes()
        environment = Path("/proc/self/environ").read_bytes()
        osutil.set_command_line(text)
        shown = Path("/proc/self/cmdline").read_bytes()
        expected = text.encode()[: len(whole) - 1].ljust(len(whole), b"\0")
        return 0 if shown == expected and Path("/proc/self/environ").read_bytes() == environment else 1

    assert in_child(work) == 0


def test_the_soft_limit_of_files_becomes_the_hard_one() -> None:
    def work() -> int:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, hard))
        return 0 if osutil.raise_file_limit() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0] else 1

    assert in_child(work) == 0


@pytest.mark.parametrize("kept", [[], [0], [3], [5, 9], [3, 4, 5, 20, 40]])
def test_only_what_is_named_stays_open(kept: list[int]) -> None:
    def work() -> int:
        null = os.open(os.devnull, os.O_RDONLY)
        for number in range(3, 60):
            os.dup2(null, number)
        keep_only(set(kept))
        left = {int(name) for name in os.listdir("/proc/self/fd")}
        listing = {number for number in left if not _is_open(number)}
        return 0 if left - listing - {0, 1, 2} == set(kept) - {0, 1, 2} else 1

    assert in_child(work) == 0


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def full(work: Callable[[], int]) -> Callable[[], int]:
    """Do it without a free descriptor."""

    def inside() -> int:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        return work()

    return inside


def test_who_cannot_look_does_not_say_that_there_is_nobody(start: Start) -> None:
    process = start(PARENT)
    wait_until(lambda: osutil.children_of(process.pid))

    def refused() -> int:
        for look in (
            lambda: osutil.children_of(process.pid),
            lambda: osutil.kill_child(os.getppid(), process.pid),
            lambda: osutil.kill_run("no such mark", nobody),
            lambda: kernel_state(process.pid),
        ):
            try:
                look()
            except OSError as error:
                if error.errno != errno.EMFILE:
                    return 1
            else:
                return 2
        return 0

    assert in_child(full(refused)) == 0
    assert process.poll() is None


def test_with_a_reserve_a_full_table_hides_nobody(start: Start) -> None:
    process = start(PARENT)
    wait_until(lambda: osutil.children_of(process.pid))
    (child,) = osutil.children_of(process.pid)

    def look() -> int:
        reserve.fill()

        def found() -> int:
            if osutil.children_of(process.pid) != [child] or kernel_state(child) not in "SRD":
                return 1
            return 0 if osutil.kill_run("no such mark", lambda pid: pid == child) == 1 else 2

        return full(found)()

    assert in_child(look) == 0
    wait_until(lambda: kernel_state(child) in "ZX")
