"""A number that all descendants of a process inherit."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from meshrt.host.family import Families, is_of_block, join_family, new_family_block

_LOCKS = 10


@contextmanager
def member(number: int) -> Iterator[int]:
    """A forked process that has joined the family ``number`` and waits."""
    ready, told = os.pipe()
    gate, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        join_family(number)
        os.write(told, b"x")
        os.read(gate, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        yield pid
    finally:
        for descriptor in (ready, told, gate, end):
            os.close(descriptor)
        os.waitpid(pid, 0)


def test_each_process_tells_the_number_that_it_was_given() -> None:
    families = Families(new_family_block())
    numbers = [families.new() for _ in range(3)]
    assert len(set(numbers)) == 3
    for number in numbers:
        with member(number) as pid:
            assert families.of(pid) == number
            assert Families(new_family_block()).of(pid) is None  # of another agent
    assert families.of(os.getpid()) is None


def test_it_outlives_exec_sessions_and_a_cleared_environment() -> None:
    families = Families(new_family_block())
    number = families.new()
    script = "setsid sleep 600 >/dev/null 2>&1 & echo $!; wait"
    child = subprocess.Popen(
        ["/bin/sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: join_family(number),
    )
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        assert families.of(child.pid) == families.of(grandchild) == number
    finally:
        os.kill(grandchild, 9)
        child.communicate()


def test_a_process_that_has_ended_still_tells_it() -> None:
    families = Families(new_family_block())
    number = families.new()
    pid = os.fork()
    if pid == 0:
        join_family(number)
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert families.of(pid) == number
    os.waitpid(pid, 0)


def test_where_the_number_is_refused_the_process_has_none() -> None:
    families = Families(new_family_block())
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(_LOCKS, (1000, 1000))
        join_family(families.new())
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert families.of(pid) is None
    assert os.waitpid(pid, 0)[1] == 0


def test_a_block_is_of_one_agent_and_no_limit_that_anybody_sets() -> None:
    first, second = new_family_block(), new_family_block()
    families = Families(first)
    with member(families.new()) as pid:
        assert is_of_block(pid, first)
        assert not is_of_block(pid, second)
    assert not is_of_block(os.getpid(), first)
    for limit in (0, 1000, 1 << 32, (1 << 53) - 1, resource.RLIM_INFINITY):
        with member(limit) as pid:
            assert not is_of_block(pid, first)
            assert not 1 << 33 <= limit >> 28 < 1 << 34, "no block begins so"  # "unlimited" is -1 before Python 3.15
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert not is_of_block(ended.pid, first)
