"""Large arrays are in memory once for all ranks of a host, and references live as long as somebody holds them."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshrt import (
    Actor,
    ArgumentNotSerializable,
    HostLost,
    LocalEngine,
    MeshError,
    ObjectRef,
    ProcessDied,
    ShutdownError,
    StoreFull,
    UsageError,
    current_rank,
    endpoint,
    memory,
    proc_mesh,
    put,
)
from meshrt.mesh.call import MeshCall
from meshrt.store.lease import _leases
from meshrt.store.packing import LARGE
from meshrt.transport.process import current_runtime
from tests.support.waiting import holds_within, wait_until

LONG = 60
N = LARGE // 8  # float64s that are just large enough


class Keeper(Actor):
    def __init__(self, first: Any = None) -> None:
        self.kept = first

    @endpoint
    def look(self, array: Any) -> tuple[float, bool]:
        return float(array.sum()), bool(array.flags.writeable)

    @endpoint
    def read(self, buffer: Any) -> str:
        view = memoryview(buffer)
        return f"{type(buffer).__name__} {view.readonly} {bytes(view[-3:])!r}"

    @endpoint
    def keep(self, value: Any) -> str:
        self.kept = value
        return type(value).__name__

    @endpoint
    def sum_kept(self) -> float:
        value = self.kept.get() if isinstance(self.kept, ObjectRef) else self.kept
        return float(value.sum())

    @endpoint
    def kept_is_writeable(self) -> bool:
        return bool(self.kept.flags.writeable)

    @endpoint
    def drop(self) -> None:
        self.kept = None

    @endpoint
    def make(self, size: int) -> Any:
        return np.full(size, float(os.getpid()))

    @endpoint
    def make_or_fail(self, size: int, gates: list[str]) -> Any:
        """Wait for the gate of this rank; the first rank fails then."""
        rank = current_rank().rank
        wait_until(Path(gates[rank]).exists, LONG)
        if rank == 0:
            raise ValueError("no more")
        return self.make(size)

    @endpoint
    def pass_on(self, others: Any, lazy: bool) -> Any:
        """Give what was kept to others."""
        names = others.keep.call(self.kept).get(LONG).values()
        self.kept = None
        return names

    @endpoint
    def put(self, size: int, lazy: bool) -> Any:
        return put(np.full(size, 3.0), lazy=lazy)

    @endpoint
    def write_to_view(self, array: Any) -> str:
        """Try everything that would change what others see."""
        descriptors = [name for name in os.listdir("/proc/self/fd") if "meshrt:" in _link(name)]
        try:
            array.setflags(write=True)
        except ValueError as error:
            return f"{len(descriptors)} {error}"
        return "writable"

    @endpoint
    def fork_and_drop(self) -> None:
        """Start a child that will look at what its parent lets go of now."""
        parent, self.to_child = os.pipe()
        if os.fork() == 0:
            try:
                os.read(parent, 1)
                code = int(self.kept.sum() == len(self.kept))
            finally:
                os._exit(code)
        os.close(parent)
        self.kept = None

    @endpoint
    def ask_child(self) -> int:
        os.write(self.to_child, b"x")
        os.close(self.to_child)
        _, status = os.wait()
        return os.waitstatus_to_exitcode(status)

    @endpoint
    def parent(self) -> int:
        return os.getppid()

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def _link(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def in_use() -> int:
    """Bytes of this process's arena that somebody holds, as far as is known by now."""
    return int(current_runtime().store.statistics()["taken"])


def becomes_free() -> bool:
    return holds_within(LONG, lambda: in_use() == 0)


def call_until_it_fails(keeper: Any) -> None:
    while True:
        keeper.pid.call_one().get(LONG)


def test_arguments_and_results_are_views_that_cannot_be_written() -> None:
    keepers = proc_mesh(n=3).spawn("keeper", Keeper)
    array = np.arange(N, dtype=float)
    assert set(keepers.look.call(array).get(LONG).values()) == {(array.sum(), False)}
    assert set(keepers.look.call(array[:-1]).get(LONG).values()) == {(array[:-1].sum(), True)}, "small: its own"
    results = keepers.make.call(N).get(LONG)
    pids = keepers.pid.call().get(LONG).values()
    for result, pid in zip(results.values(), pids, strict=True):
        assert (result == pid).all() and not result.flags.writeable
    for text in keepers.write_to_view.call(array).get(LONG).values():
        assert text == "1 cannot set WRITEABLE flag to True of this array", "1: what it has written itself"
    # Whatever pickle hands out as a buffer goes there, not arrays of numpy alone.
    plain = bytearray(LARGE) + b"end"
    assert set(keepers.read.call(pickle.PickleBuffer(plain)).get(LONG).values()) == {"memoryview True b'end'"}
    assert keepers.keep.call(pickle.PickleBuffer(plain)).get(LONG).values() == ["memoryview"] * 3
    assert holds_within(LONG, lambda: in_use() <= LARGE + 4096), "once for all"
    assert in_use() > LARGE
    keepers.drop.call().get(LONG)
    assert current_runtime().store.statistics()["refusals"] == 0
    assert becomes_free()


def test_results_of_calls_that_nobody_keeps_are_let_go() -> None:
    keepers = proc_mesh(n=2).spawn("keeper", Keeper).get(LONG)
    kept = keepers.make.call(N)
    wait_until(lambda: len(memory(references=True)["references"]) == 2, LONG)
    del kept
    wait_until(lambda: not memory(references=True)["references"], LONG)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_what_others_answer_to_a_call_that_fails_is_let_go_at_once(first: int, tmp_path: Path) -> None:
    """Whatever comes first; nobody has to drop the error, nor to wait until cycles are collected."""
    keepers = proc_mesh(n=2).spawn("keeper", Keeper).get(LONG)
    gates = [tmp_path / "0", tmp_path / "1"]
    before = len(_leases())

    def fail() -> None:
        call = keepers.make_or_fail.call(N, [str(gate) for gate in gates])
        gates[first].touch()
        if first == 1:
            assert holds_within(LONG, lambda: not call.done() and len(_leases()) == before + 1)
            gates[0].touch()
        error = call.exception(LONG)
        gates[1].touch()
        keepers.pid.call().get(LONG)  # behind what is late
        assert isinstance(error, ValueError) and len(_leases()) == before

    def calls() -> int:
        # Not by `isinstance`, which asks whatever there is for its class.
        return sum(type(each) is MeshCall for each in gc.get_objects())

    gc.disable()
    try:
        fail()
        gc.collect()
        others = calls()
        with contextlib.suppress(ValueError):
            keepers.make_or_fail.call(N, [str(gate) for gate in gates]).get(LONG)
        keepers.pid.call().get(LONG)
        assert calls() == others
    finally:
        gc.enable()


def test_a_sender_may_change_its_array_at_once() -> None:
    keepers = proc_mesh(n=2).spawn("keeper", Keeper)
    array = np.ones(N)
    keepers.keep.call(array).get(LONG)
    array[:] = 5
    kept = keepers.make.call(N).get(LONG)
    assert set(keepers.sum_kept.call().get(LONG).values()) == {float(N)}
    keepers.drop.call().get(LONG)
    assert becomes_free()
    assert kept.values()[0].sum() == N * keepers.pid.call().get(LONG).values()[0], "results are held here"


def test_memory_is_used_again() -> None:
    keepers = proc_mesh(n=2).spawn("keeper", Keeper)
    for _ in range(30):
        keepers.look.call(np.ones(N)).get(LONG)
        assert becomes_free()
    assert current_runtime().store.statistics()["committed"] <= 8 * LARGE
    assert holds_within(LONG, lambda: current_runtime().store.statistics()["committed"] == 0), (
        "given back when nobody has asked for any for a while"
    )
    chunks = [int(name) for name in os.listdir("/proc/self/fd") if "meshrt:" in _link(name)]
    assert [os.fstat(chunk).st_blocks for chunk in chunks] == [0], "the kernel has it"


def test_what_outlives_its_mesh() -> None:
    mesh = proc_mesh(n=2)
    killed, ended = mesh.spawn("keeper", Keeper).make.call(N).get(LONG).values()
    pids = [int(killed[0]), int(ended[0])]
    os.kill(pids[0], signal.SIGKILL)
    mesh.stop().get(LONG)
    assert (killed == pids[0]).all() and (ended == pids[1]).all()


def test_a_broadcast_and_a_stream() -> None:
    keepers = proc_mesh(n=3).spawn("keeper", Keeper)
    keepers.keep.broadcast(np.ones(N))
    assert [future.get(LONG) for future in keepers.sum_kept.stream()] == [N] * 3
    assert {future.get(LONG)[0] for future in keepers.look.stream(np.ones(N))} == {N}
    keepers.drop.call().get(LONG)
    assert becomes_free()


@pytest.mark.slow
def test_results_that_nobody_reads_are_let_go() -> None:
    keeper = proc_mesh(n=1).spawn("keeper", Keeper)
    futures = [keeper.make.call_one(N) for _ in range(3)]
    futures[-1].get(LONG)
    owner = keeper.pid.call_one().get(LONG)
    del futures
    gc.collect()
    assert keeper.make.call_one(N).get(LONG)[0] == owner


def test_actors_pass_arrays_to_each_other() -> None:
    mesh = proc_mesh(n=3)
    first, others = mesh.spawn("first", Keeper), mesh.spawn("others", Keeper)
    first.keep.call(np.ones(N)).get(LONG)
    assert first.slice(n=0).pass_on.call_one(others, False).get(LONG) == ["ndarray"] * 3
    assert set(others.sum_kept.call().get(LONG).values()) == {N}


def test_a_reference_arrives_as_the_object_or_as_itself() -> None:
    keepers = proc_mesh(n=2).spawn("keeper", Keeper)
    eager, lazy = put({"a": np.ones(N)}), put(np.ones(N), lazy=True)
    assert eager.site.startswith(__file__) and eager.nbytes >= LARGE and "0.25 MiB put at /" in repr(eager)
    assert keepers.keep.call(eager).get(LONG).values() == ["dict"] * 2
    assert keepers.keep.call([lazy]).get(LONG).values() == ["list"] * 2
    assert keepers.keep.call(lazy).get(LONG).values() == ["ObjectRef"] * 2
    assert lazy.get().sum() == N and lazy == lazy
    del eager, lazy
    assert set(keepers.sum_kept.call().get(LONG).values()) == {N}, "others hold it"
    keepers.drop.call().get(LONG)
    assert becomes_free()


def test_a_reference_is_passed_on_and_its_maker_dies() -> None:
    mesh = proc_mesh(n=3)
    first, others = mesh.spawn("first", Keeper), mesh.spawn("others", Keeper)
    reference = first.slice(n=1).put.call_one(N, True).get(LONG)
    assert reference.get().sum() == 3 * N
    first.slice(n=0).keep.call_one(reference).get(LONG)
    others.slice(n=2).keep.call_one(reference).get(LONG)
    del reference
    os.kill(first.slice(n=1).pid.call_one().get(LONG), signal.SIGKILL)
    with pytest.raises(ProcessDied):
        first.slice(n=1).pid.call_one().get(LONG)
    assert first.slice(n=0).pass_on.call_one(others.slice(n=0), True).get(LONG) == ["ObjectRef"]
    assert others.slice(n=0).sum_kept.call_one().get(LONG) == 3 * N
    assert others.slice(n=2).sum_kept.call_one().get(LONG) == 3 * N


def test_holders_that_die_hold_nothing() -> None:
    keepers = proc_mesh(n=3).spawn("keeper", Keeper)
    keepers.keep.call(put(np.ones(N))).get(LONG)
    assert in_use() >= LARGE
    for pid in keepers.pid.call().get(LONG).values():
        os.kill(pid, signal.SIGKILL)
    assert becomes_free()


def test_constructors_take_them_before_there_is_an_agent() -> None:
    keepers = proc_mesh(n=2).spawn("keeper", Keeper, np.ones(N))
    assert current_runtime().store.statistics()["refusals"] == 0
    assert keepers.kept_is_writeable.call().get(LONG).values() == [False, False]


def test_constructors_take_them_before_the_rank_is_born() -> None:
    mesh = proc_mesh(n=2)
    reference = put(np.ones(N), lazy=True)
    byvalue, byref = mesh.spawn("value", Keeper, np.ones(N)), mesh.spawn("ref", Keeper, reference)
    assert byvalue.sum_kept.call().get(LONG).values() == byref.sum_kept.call().get(LONG).values() == [N, N]


def test_a_rank_that_is_started_again_is_sent_its_arguments_again() -> None:
    keeper = proc_mesh(n=1).spawn("keeper", Keeper, np.ones(N), max_restarts=1)
    os.kill(keeper.pid.call_one().get(LONG), signal.SIGKILL)

    def again() -> bool:
        try:
            return bool(keeper.sum_kept.call_one().get(LONG) == N)
        except ProcessDied:
            return False

    assert holds_within(LONG, again)


def test_what_a_forked_child_sees_stays() -> None:
    keeper = proc_mesh(n=1).spawn("keeper", Keeper)
    keeper.keep.call_one(np.ones(N)).get(LONG)
    keeper.fork_and_drop.call_one().get(LONG)
    for _ in range(3):
        keeper.look.call_one(np.full(N, 5.0)).get(LONG)
    assert keeper.ask_child.call_one().get(LONG) == 1


@pytest.mark.row("O4")
def test_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_STORE_LIMIT", "1MiB")
    keepers = proc_mesh(n=2).spawn("keeper", Keeper)
    with pytest.raises(
        StoreFull,
        match=r"2\.00 MiB do not fit in the store: the store uses 0 B, .*MESHRT_STORE_LIMIT.* 1\.00 MiB; raise the "
        r"limit, or",
    ):
        put(np.ones(8 * N))
    # A message goes another way.
    assert keepers.look.call(np.ones(8 * N)).get(LONG).values() == [(8.0 * N, True)] * 2
    assert current_runtime().store.statistics()["refusals"] == 1
    spilled = put(np.ones(8 * N), spill=True)
    assert keepers.look.call(spilled).get(LONG).values() == [(8.0 * N, False)] * 2
    monkeypatch.setenv("MESHRT_STORE_SPILL", "1")
    by_default = put(np.ones(8 * N))
    with pytest.raises(StoreFull):
        put(np.ones(8 * N), spill=False)
    assert memory()["stores"][0]["files"] >= spilled.nbytes + by_default.nbytes
    files = {_link(name) for name in os.listdir("/proc/self/fd")}
    assert any(str(Path(current_runtime().store._arenas.run_directory)) in link and "deleted" in link for link in files)


def test_a_limit_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_STORE_LIMIT", "lots")
    with pytest.raises(UsageError, match="MESHRT_STORE_LIMIT='lots': expected a size such as 4GiB"):
        proc_mesh(n=1)


def test_misuse() -> None:
    with pytest.raises((UsageError, ShutdownError), match="proc_mesh"):  # none was made yet, or it was ended
        put(1)
    mesh = proc_mesh(n=1)
    reference = put(np.ones(3))
    with pytest.raises(UsageError, match="passed to an endpoint"):
        pickle.dumps(reference)
    with pytest.raises(ArgumentNotSerializable, match=r"put\(\): .*cannot be pickled"):
        put((lambda: (yield))())
    with pytest.raises(MeshError):
        put([reference])
    mesh.stop().get(LONG)


def test_an_agent_that_dies_takes_what_it_knew_and_nothing_else() -> None:
    mesh = proc_mesh(hosts=2, gpus=1, engine=LocalEngine(agents=2))
    keepers = mesh.spawn("keeper", Keeper)
    result = keepers.slice(hosts=0).make.call_one(N).get(LONG)
    expected = result[0]
    reference = put(np.ones(N), lazy=True)
    keepers.slice(hosts=1).keep.call_one(reference).get(LONG)
    store = current_runtime().store
    (agent,) = [pid for pid, _ in store._arenas._arenas]
    parents = keepers.parent.call().get(LONG).values()
    other = 1 - parents.index(agent)
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(HostLost):
        call_until_it_fails(keepers.slice(hosts=1 - other))
    store._tick()
    assert (result == expected).all() and reference.get().sum() == N
    survivors: Any = keepers.slice(hosts=other)
    assert holds_within(LONG, lambda: store._registrars.home(0.0) not in (0, agent))
    assert survivors.look.call_one(np.ones(N)).get(LONG) == (float(N), False), "another host knows of it now"


def test_nothing_has_a_name() -> None:
    def named() -> list[str]:
        return sorted(set(re.findall(r"/dev/shm/.*", Path("/proc/self/maps").read_text())))

    before = named()  # what other code of this process has mapped
    keepers = proc_mesh(n=2).spawn("keeper", Keeper)
    keepers.keep.call(put(np.ones(N))).get(LONG)
    assert named() == before
    (chunk,) = [name for name in os.listdir("/proc/self/fd") if "meshrt:" in _link(name)]
    reading = os.open(f"/proc/self/fd/{chunk}", os.O_RDONLY)
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(reading, 4096)  # what a receiver gets: to read
        with pytest.raises(PermissionError):
            os.ftruncate(int(chunk), 0)  # not even the owner: it would end others by SIGBUS
    finally:
        os.close(reading)
