"""Hosts of several machines (made up, on this one): what is large travels once to each, and is let go everywhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import meshrt
from meshrt import Actor, ActorError, ActorMesh, HostLost, LocalEngine, MeshError, ObjectRef, endpoint, put
from meshrt.store.machine import SEPARATE
from meshrt.transport.process import current_runtime
from tests.support.pausing import pause, paused
from tests.support.waiting import holds_within, wait_until

LONG = 60
MIB = 1 << 20
N = MIB // 8


class Keeper(Actor):
    def __init__(self, first: Any = None) -> None:
        self.kept = first

    @endpoint
    def keep(self, value: Any) -> bool:
        self.kept = value
        return bool(value.flags.writeable) if isinstance(value, np.ndarray) else False

    @endpoint
    def sum(self) -> float:
        array = self.kept.get() if isinstance(self.kept, ObjectRef) else self.kept
        return float(array.sum())

    @endpoint
    def check(self, first: float, second: float) -> bool:
        return bool((self.kept[0] == first).all() and (self.kept[1] == second).all())

    @endpoint
    def drop(self) -> None:
        self.kept = None

    @endpoint
    def make(self, size: int) -> Any:
        return np.full(size, float(os.getpid()))

    @endpoint
    def put(self, size: int) -> Any:
        return put(np.full(size, 3.0), lazy=True)

    @endpoint
    def pass_on(self, other: Any) -> Any:
        return other.keep.call(self.kept).get(LONG).values()

    @endpoint
    def parent(self) -> int:
        return os.getppid()


def keepers(monkeypatch: pytest.MonkeyPatch, gpus: int = 1) -> tuple[ActorMesh[Keeper], Any, Any]:
    """Ranks on two hosts: all of them, those of the script's machine, and those of the other one."""
    monkeypatch.setenv(SEPARATE, "1")
    made = meshrt.proc_mesh(hosts=2, gpus=gpus, engine=LocalEngine(agents=2)).spawn("keeper", Keeper)
    parents = made.slice(gpus=0).parent.call().get(LONG).values()
    home = parents.index(current_runtime().store._registrars.home(0.0))
    return made, made.slice(hosts=home), made.slice(hosts=1 - home)


def stores() -> tuple[int, int, int]:
    """Bytes that were fetched, that were sent, and that are committed now, on all hosts together."""
    found = meshrt.memory()["stores"]
    return (
        sum(store["fetched"]["bytes"] for store in found),
        sum(store["sent"] for store in found),
        sum(store["committed"] for store in found),
    )


def is_lost(ranks: Any) -> bool:
    try:
        ranks.drop.call().get(LONG)
    except HostLost:
        return True
    return False


def all_is_free() -> bool:
    document = meshrt.memory(references=True)
    return document["references"] == [] and stores()[2] == 0


@pytest.mark.nightly
def test_it_travels_once_to_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    every, _, away = keepers(monkeypatch, gpus=4)
    array = np.arange(8 * MIB, dtype=float)
    assert set(every.keep.call(array).get(LONG).values()) == {False}, "all see shared memory"
    assert stores() == (64 * MIB, 64 * MIB, 128 * MIB)
    assert set(every.sum.call().get(LONG).values()) == {array.sum()}
    rows = meshrt.memory(references=True)["references"]
    assert sorted(len(row["holders"]) for row in rows) == [4, 5], "the other machine is one holder"
    shown = [sys.executable, "-m", "meshrt", "memory", "--refs", str(os.getpid())]
    text = subprocess.run(shown, capture_output=True, text=True, check=True, timeout=LONG).stdout
    assert re.search(r"host \S+~[01], (0-3|4-7) ", text), "the other machine is named"
    assert text.count("; 64.0 MiB fetched from other machines (objects: 1)") == 1
    away.slice(gpus=0).drop.call().get(LONG)
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)
    os.kill(away.slice(gpus=1).make.call_one(1).get(LONG).astype(int)[0], signal.SIGKILL)
    assert set(away.slice(gpus=slice(2, None)).sum.call().get(LONG).values()) == {array.sum()}
    every.slice(gpus=slice(2, None)).drop.call().get(LONG)
    every.slice(gpus=0).drop.call().get(LONG)
    assert stores()[2] > 0, "one holds it still"
    with pytest.raises(MeshError):
        every.drop.call().get(LONG)
    assert holds_within(LONG, all_is_free)


@pytest.mark.slow
def test_it_goes_from_host_to_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEPARATE, "1")
    every = meshrt.proc_mesh(hosts=4, gpus=2, engine=LocalEngine(agents=4)).spawn("keeper", Keeper)
    every.keep.call(np.ones(8 * N)).get(LONG)
    every.keep.broadcast(np.ones(8 * N))
    assert set(every.sum.call().get(LONG).values()) == {8 * N}
    sent = [store["sent"] >> 20 for store in meshrt.memory()["stores"]]
    assert sum(sent) == 48 and max(sent) <= 16, "each sends an array once at most, and the last not at all"
    every.drop.call().get(LONG)
    assert holds_within(LONG, all_is_free)


@pytest.mark.slow
def test_arguments_references_and_results(monkeypatch: pytest.MonkeyPatch) -> None:
    every, near, away = keepers(monkeypatch)
    results = every.make.call(N).get(LONG).values()
    assert [result[0] for result in results] == [result[-1] for result in results]
    assert sorted(result.flags.writeable for result in results) == [False, True], "what comes from away is a copy"
    assert stores()[0] == 0
    reference = put(np.ones(N))
    every.keep.call(reference).get(LONG)
    every.keep.call(reference).get(LONG)
    before = stores()[0]
    assert before >> 20 in (1, 2), "it may have been let go there before it was sent again"
    assert away.pass_on.call_one(near).get(LONG) == [False], "back to where it came from"
    assert near.sum.call_one().get(LONG) == N and stores()[0] == before + MIB
    every.drop.call().get(LONG)
    every.keep.broadcast(np.full(N, 2.0))
    assert every.sum.call().get(LONG).values() == [2.0 * N] * 2 and stores()[0] == before + 2 * MIB
    built = meshrt.proc_mesh(hosts=2, gpus=1, engine=LocalEngine(agents=2)).spawn("built", Keeper, np.ones(N))
    assert built.sum.call().get(LONG).values() == [N, N]
    returned = away.put.call_one(N).get(LONG)
    away.keep.broadcast(returned)
    assert away.sum.call_one().get(LONG) == 3.0 * N
    del results, reference, returned
    every.drop.call().get(LONG)
    built.drop.call().get(LONG)
    assert holds_within(LONG, all_is_free), "no two hosts hold it for each other"


@pytest.mark.slow
def test_what_nobody_answers_is_there_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    every, near, away = keepers(monkeypatch, gpus=3)
    array, reference = np.full(2 * N, 2.0), put(np.full(N, 1.0))
    every.keep.broadcast([array, reference])
    assert every.check.call(2.0, 1.0).get(LONG).values() == [True] * 6
    travelled = stores()[0]
    assert travelled >> 20 == 3, "each of them once"
    every.keep.broadcast(reference)
    assert every.sum.call().get(LONG).values() == [N] * 6 and stores()[0] == travelled, "it was there still"
    del array, reference
    result = away.slice(gpus=0).put.call_one(N).get(LONG)
    assert result.get().sum() == 3.0 * N and not result.get().flags.writeable
    os.kill(away.slice(gpus=0).parent.call_one().get(LONG), signal.SIGKILL)
    assert holds_within(LONG, lambda: is_lost(away))
    assert result.get().sum() == 3.0 * N
    near.keep.broadcast(result)
    assert near.sum.call().get(LONG).values() == [3.0 * N] * 3
    near.drop.call().get(LONG)
    del result
    assert holds_within(LONG, all_is_free)


@pytest.mark.slow
def test_a_host_that_takes_long_keeps_other_threads_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread sends what has to be brought there first; others put, send, receive and let go meanwhile."""
    _, near, away = keepers(monkeypatch, gpus=2)
    registrar = current_runtime().store._registrars.of(near.slice(gpus=0).parent.call_one().get(LONG))
    with ThreadPoolExecutor(1) as threads:
        with paused(away.slice(gpus=0).parent.call_one().get(LONG)):
            sending = threads.submit(away.keep.broadcast, np.full(N, 5.0))
            wait_until(lambda: len(registrar._questions), LONG, "it is offered to the host that is stopped")
            reference = put(np.ones(N))
            assert near.keep.call(reference).get(LONG).values() == [False] * 2
            assert near.sum.call().get(LONG).values() == [N] * 2 == [reference.get().sum()] * 2
            assert near.make.call(N).get(LONG).values()[0].shape == (N,)
            near.drop.call().get(LONG)
            del reference
            assert holds_within(LONG, lambda: current_runtime().store.statistics()["taken"] == N * 8)
            assert not sending.done(), "all of that while it is on its way"
        sending.result(LONG)
    assert away.sum.call().get(LONG).values() == [5.0 * N] * 2
    away.drop.call().get(LONG)
    assert holds_within(LONG, all_is_free)


def test_the_host_that_has_it_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    _, near, away = keepers(monkeypatch)
    reference = put(np.ones(N))
    owner = near.parent.call_one().get(LONG)
    pause(owner)
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)  # get() raises what befell its own call
    call = away.keep.call_one(reference)
    assert not call.done()
    os.kill(owner, signal.SIGKILL)
    with pytest.raises(ActorError, match="the host that holds the data is lost") as caught:
        call.get(LONG)
    assert "\n" not in str(caught.value), "where in the runtime that was found out is nobody's concern"
    with pytest.raises(HostLost):
        near.sum.call_one().get(LONG)
    assert away.keep.call_one(np.ones(N)).get(LONG) is False, "its store is that of the script now"
    away.drop.call_one().get(LONG)
    assert holds_within(LONG, all_is_free)


def test_the_host_that_fetches_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    _, near, away = keepers(monkeypatch)
    reference = put(np.ones(N))
    owner, other = near.parent.call_one().get(LONG), away.parent.call_one().get(LONG)
    with paused(owner):
        call = away.keep.call_one(reference)
        os.kill(other, signal.SIGKILL)
        with pytest.raises(
            (HostLost, ActorError), match=r"was lost with the agent|is not available any more|has ended"
        ):
            call.get(LONG)  # its rank may still have said so
    with pytest.raises(HostLost):
        away.sum.call_one().get(LONG)
    assert near.keep.call_one(reference).get(LONG) is False
    near.drop.call_one().get(LONG)
    del reference, call
    assert holds_within(LONG, all_is_free)
