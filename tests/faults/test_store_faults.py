"""Whatever ends, stops or runs out: nobody sees memory that was written again, and nothing stays behind."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshrt import Actor, CallTimeout, MeshError, ProcessDied, StoreTimeout, endpoint, proc_mesh, put
from meshrt.hooks.table import hooks
from meshrt.mesh import restarts
from meshrt.store import registrar
from meshrt.store.messages import GiveBack, Grant, Granted
from meshrt.store.packing import LARGE
from meshrt.transport.process import current_runtime
from tests.faults.watch import LONG as LONGEST
from tests.faults.watch import Program, agents, all_gone, is_alive
from tests.support.pausing import paused
from tests.support.waiting import holds_within

LONG = 60
N = LARGE // 8
#: More than a process asks its store for at once.
BIG = 1 << 20


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
    def names(self) -> list[int]:
        return list(self.arrays)

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
    with paused(pid):
        for name in range(20):
            shelf.keep.broadcast(name, np.full(N, float(name)))
        with pytest.raises(CallTimeout):
            shelf.pid.call_one().get(0.1)
    assert shelf.wrong.call_one().get(LONG) == []


def test_an_agent_that_stands_still_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for it twice; what can go through sockets does; and all is well as soon as it goes on."""
    shelf = proc_mesh(n=1).spawn("shelf", Shelf)
    agent = shelf.parent.call_one().get(LONG)
    said = rf"^the agent of host {socket.gethostname()} \(pid {agent}\) has not .*, for .* s; .*`kill -CONT {agent}`"
    with silent(agent, monkeypatch):
        for _ in range(2):  # nobody has been connected to it yet
            with pytest.raises(StoreTimeout, match=said):
                put(np.ones(N))
    assert holds_within(LONG, speaks) and put(np.ones(N)).get().sum() == N
    with silent(agent, monkeypatch):
        with pytest.raises(StoreTimeout, match=said) as first:
            put(np.ones(BIG), spill=True)
        shelf.keep.call_one(1, np.ones(BIG)).get(LONG)
        with pytest.raises(TimeoutError, match=said) as second:
            put(np.ones(BIG))
        assert isinstance(second.value, StoreTimeout)
        assert first.value.stopped and (first.value.pid, first.value.host) == (agent, socket.gethostname())
        assert second.value.since == pytest.approx(first.value.since, abs=1e8), "it was not asked once more"
    assert f"(pid {agent}) has not answered" in caplog.text
    assert holds_within(LONG, speaks) and shelf.wrong.call_one().get(LONG) == []
    assert put(np.ones(BIG)).get().sum() == BIG
    assert holds_within(LONG, lambda: taken() == 0)


@contextlib.contextmanager
def silent(agent: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that stands still, for whom nobody waits as long as otherwise."""
    with paused(agent), monkeypatch.context() as patch:
        patch.setattr(registrar, "_PATIENCE", 0.2)
        patch.setattr(registrar, "_AGAIN", 0.1)
        yield


def speaks() -> bool:
    """Whether the store of this host answers, as far as this process has heard."""
    registrars = current_runtime().store._registrars
    store = registrars.of(registrars.home(0.0))
    try:
        store.ask(lambda number: Grant(number, 1), Granted)
    except StoreTimeout:
        return False
    store.tell_later(GiveBack(1))
    return True


@pytest.mark.slow
def test_memory_of_a_dead_owner_goes_when_nobody_sees_it_any_more() -> None:
    shelf = proc_mesh(n=2).spawn("shelf", Shelf)
    agent = shelf.parent.call().get(LONG).values()[0]
    before = chunks_of(agent)
    result = shelf.slice(n=0).make.call_one(5).get(LONG)
    # Within a moment: what goes with an answer is a duplicate, which the agent closes when it went out.
    assert holds_within(LONG, lambda: len(chunks_of(agent)) == len(before) + 1)
    os.kill(shelf.slice(n=0).pid.call_one().get(LONG), signal.SIGKILL)
    with pytest.raises(ProcessDied):
        shelf.slice(n=0).pid.call_one().get(LONG)
    shelf.slice(n=1).keep.call_one(5, result).get(LONG)
    assert (result == 5).all()
    assert holds_within(LONG, lambda: len(chunks_of(agent)) == len(before) + 2), "that of the dead, that of the script"
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


#: Keeps an array in ranks, a result of one of them, and what has no room in memory; a rank stands still, and has not
#: read yet what it was sent.
KEEPS = """
    import numpy
    from tests.support.pausing import pause
    def keep(array):
        sys.kept = array
    victims = proc_mesh(hosts=2, gpus=2, engine=LocalEngine(2)).spawn("victim", Victim).get(20)
    array = numpy.full(1 << 20, 7, numpy.uint8)
    victims.apply.call(keep, array).get(20)
    result = victims.slice(hosts=0, gpus=0).apply.call_one(numpy.ones, 1 << 18).get(20)
    spilled = put(numpy.ones(4 << 20), spill=True)
    pids = victims.pid.call().get(20).values()
    pause(pids[3])
    victims.slice(hosts=1, gpus=1).echo.broadcast(array)
    tell(ready=pids)
    victims.slice(hosts=0).wait_for.call(sys.argv[1]).get(20)
    tell(sums=victims.slice(hosts=0).apply.call(lambda: int(sys.kept.sum())).get(20).values())
    threading.Event().wait()
"""


def mapped_by(pid: int) -> str:
    """What a process has in its memory."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""  # ended meanwhile, or of another user


def reads(path: str) -> None:
    """Have a process that has nothing to do with the program map a chunk, and end."""
    code = "import mmap, os, sys; mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 4096, prot=mmap.PROT_READ)[0]"
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=LONG)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["the script", "the script and its agents", "everybody"])
def test_nothing_is_left_whoever_is_killed(who: str, tmp_path: Path) -> None:
    """Nobody has a chunk any more, nothing has a name; and until then no stranger can end what others see."""
    env = {"MESHRT_STORE_LIMIT": "8MiB", "MESHRT_RUNS": str(tmp_path / "runs")}
    with Program(KEEPS, tmp_path, str(tmp_path / "read"), env=env) as program:
        ranks = program.told("ready")
        hosts = agents(program.pid)
        chunks = {chunk for pid in (program.pid, *hosts) for chunk in chunks_of(pid)}
        assert len(chunks) == 2, "that of the script, and that of the rank that has returned an array"
        assert all(any(chunk in mapped_by(pid) for chunk in chunks) for pid in (program.pid, *ranks[:3]))
        for number in os.listdir(f"/proc/{hosts[0]}/fd"):
            if os.readlink(f"/proc/{hosts[0]}/fd/{number}") in chunks:
                reads(f"/proc/{hosts[0]}/fd/{number}")
        (tmp_path / "read").touch()
        assert program.told("sums") == [7 << 20] * 2
        everybody = [program.pid, *hosts, *ranks]
        assert not any("/dev/shm/" in mapped_by(pid) for pid in everybody)
        for pid in everybody[: {"the script": 1, "the script and its agents": 3, "everybody": 7}[who]]:
            with contextlib.suppress(ProcessLookupError):  # ranks end with their agent
                os.kill(pid, signal.SIGKILL)
        program.ends()
        all_gone(everybody, LONGEST)
    living = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and is_alive(int(entry))]
    assert [pid for pid in living if any(chunk in mapped_by(pid) for chunk in chunks)] == []
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert files and max(path.stat().st_size for path in files) < 1 << 20
    proc_mesh(n=1).get(LONG)  # it removes what nobody was left to remove


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("how", ["call", "broadcast"])
def test_what_was_lent_to_a_rank_is_not_sent_to_the_one_in_its_place(how: str) -> None:
    """It has ended between the two: the message is lost by that."""
    shelf = proc_mesh(n=1).spawn("shelf", Shelf, max_restarts=1)
    pid = shelf.pid.call_one().get(LONG)

    def replace(_call: int) -> None:
        hooks.message_sent.remove(replace)
        os.kill(pid, signal.SIGKILL)
        assert holds_within(LONG, lambda: now_there(shelf) not in (0, pid))

    hooks.message_sent.append(replace)
    if how == "broadcast":
        shelf.keep.broadcast(1, np.ones(N))
    else:
        with pytest.raises(ProcessDied, match=f"pid {pid} was killed by SIGKILL .the call did not run.") as caught:
            shelf.keep.call_one(1, np.ones(N)).get(LONG)
        assert caught.value.place.pid == pid and not caught.value.may_have_run
    assert shelf.names.call_one().get(LONG) == [] and holds_within(LONG, lambda: taken() == 0)
    shelf.keep.call_one(2, np.full(N, 2.0)).get(LONG)
    assert shelf.wrong.call_one().get(LONG) == [] and shelf.names.call_one().get(LONG) == [2]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are started again however soon after the last time."""
    monkeypatch.setattr(restarts, "APART", 0.0)


def now_there(shelf: Any) -> int:
    """The pid of a rank; 0: it is being started again."""
    try:
        return int(shelf.pid.call_one().get(LONG))
    except ProcessDied:
        return 0


steps = st.lists(
    st.tuples(st.sampled_from(["send", "put", "back", "drop", "kill", "pass"]), st.integers(0, 2), st.integers(0, 5)),
    min_size=20,
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=4 if settings().max_examples <= 100 else 60)
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
