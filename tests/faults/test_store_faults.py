"""Whatever ends, stops or runs out: nobody sees memory that was written again, and nothing stays behind."""

from __future__ import annotations

import gc
import os
import resource
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshrt import Actor, CallTimeout, MeshError, ProcessDied, endpoint, proc_mesh, put
from meshrt.store.store import LARGE
from meshrt.transport.process import current_runtime
from tests.support.waiting import holds_within

LONG = 60
N = LARGE // 8


class Shelf(Actor):
    """Keeps arrays by name; each was filled with its own number."""

    def __init__(self) -> None:
        self.arrays: dict[int, Any] = {}

    @endpoint
    def keep(self, name: int, array: Any) -> None:
        self.arrays[name] = array

    @endpoint
    def drop(self, name: int) -> None:
        self.arrays.pop(name, None)

    @endpoint
    def wrong(self) -> list[int]:
        """Which arrays are not what they were."""
        return [name for name, array in self.arrays.items() if not (array == name).all()]

    @endpoint
    def make(self, number: int) -> Any:
        return np.full(N, float(number))

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def parent(self) -> int:
        return os.getppid()


def chunks_of(pid: int) -> list[str]:
    """The chunks that a process has a descriptor of."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return [link for link in links if link.startswith("/memfd:meshrt:")]


def taken() -> int:
    return int(current_runtime().store.statistics()["taken"])


def test_a_receiver_that_stands_still_reads_what_was_sent() -> None:
    """It has not read the message: the memory is its own all the same."""
    shelf = proc_mesh(n=1).spawn("shelf", Shelf)
    pid = shelf.pid.call_one().get(LONG)
    os.kill(pid, signal.SIGSTOP)
    try:
        for name in range(20):
            shelf.keep.broadcast(name, np.full(N, float(name)))
        with pytest.raises(CallTimeout):
            shelf.pid.call_one().get(0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert shelf.wrong.call_one().get(LONG) == []


def test_memory_of_a_dead_owner_goes_when_nobody_sees_it_any_more() -> None:
    shelf = proc_mesh(n=2).spawn("shelf", Shelf)
    agent = shelf.parent.call().get(LONG).values()[0]
    before = chunks_of(agent)
    result = shelf.slice(n=0).make.call_one(5).get(LONG)
    assert len(chunks_of(agent)) == len(before) + 1
    os.kill(shelf.slice(n=0).pid.call_one().get(LONG), signal.SIGKILL)
    with pytest.raises(ProcessDied):
        shelf.slice(n=0).pid.call_one().get(LONG)
    shelf.slice(n=1).keep.call_one(5, result).get(LONG)
    assert (result == 5).all() and len(chunks_of(agent)) == len(before) + 2, "that of the dead, and that of the script"
    del result
    gc.collect()
    assert holds_within(LONG, lambda: len(chunks_of(agent)) == len(before) + 1)
    assert shelf.slice(n=1).wrong.call_one().get(LONG) == []


def test_what_an_ended_actor_was_sent_is_let_go() -> None:
    mesh = proc_mesh(n=2)
    shelf = mesh.spawn("shelf", Shelf)
    mesh.spawn("other", Shelf).get(LONG)
    shelf.keep.call(1, np.ones(N)).get(LONG)
    for name in range(5):
        shelf.keep.broadcast(name, np.ones(N))
    shelf.stop().get(LONG)
    with pytest.raises(MeshError):
        shelf.keep.call(9, np.ones(N)).get(LONG)
    assert holds_within(LONG, lambda: taken() == 0)


def test_no_descriptor_is_left() -> None:
    shelf = proc_mesh(n=1).spawn("shelf", Shelf)
    shelf.pid.call_one().get(LONG)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limits[1]))
    held: list[int] = []
    try:
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        with pytest.raises(OSError, match="Too many open files"):
            put(np.ones(N))
        shelf.keep.call_one(1, np.ones(N)).get(LONG)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "Too many open files" in current_runtime().store.statistics()["why"]
    assert shelf.wrong.call_one().get(LONG) == []
    assert put(np.ones(N)).get().sum() == N, "as soon as there is one again"


steps = st.lists(
    st.tuples(st.sampled_from(["send", "put", "back", "drop", "kill", "pass"]), st.integers(0, 2), st.integers(0, 5)),
    min_size=20,
    max_size=60,
)


@settings(max_examples=8)
@given(steps)
def test_nobody_ever_sees_other_bytes(todo: list[tuple[str, int, int]]) -> None:
    """Ranks keep, drop and pass on arrays, and are killed and started again meanwhile."""
    mesh = proc_mesh(n=3)
    shelf = mesh.spawn("shelf", Shelf, max_restarts=1)
    own: dict[int, Any] = {}
    killed: set[int] = set()
    try:
        for what, rank, name in todo:
            one = shelf.slice(n=rank)
            try:
                if what == "send":
                    one.keep.call_one(name, np.full(N + name, float(name))).get(LONG)
                elif what == "put":
                    shelf.keep.broadcast(name, put(np.full(N + name, float(name))))
                elif what == "back":
                    own[name] = one.make.call_one(name).get(LONG)
                elif what == "pass" and name in own:
                    shelf.keep.call(name, own[name]).get(LONG)
                elif what == "drop":
                    own.pop(name, None)
                    one.drop.call_one(name).get(LONG)
                elif what == "kill" and rank not in killed:
                    killed.add(rank)
                    os.kill(one.pid.call_one().get(LONG), signal.SIGKILL)
            except ProcessDied:
                pass  # the rank that was killed; another one takes its place
            assert all((array == number).all() for number, array in own.items())
        for rank in range(3):
            assert holds_within(LONG, partial(all_right, shelf.slice(n=rank)))
        own.clear()
    finally:
        mesh.stop().get(LONG)
    assert holds_within(LONG, lambda: taken() == 0)


def all_right(shelf: Any) -> bool:
    try:
        assert shelf.wrong.call_one().get(LONG) == []
    except ProcessDied:
        return False  # it is being started again
    return True
