"""The kernel refuses memory or processes in the middle of a program; its clock jumps (`tests.support.callfaults`)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.faults.watch import Program
from tests.support.callfaults import environment_with, library

HEAD = """
    import errno, numpy, subprocess
    from meshrt.transport.process import current_runtime
    from tests.faults.watch import agents, descendants, is_alive
    from tests.support.callfaults import DAY, CallFaults
    from tests.support.waiting import wait_until
    faults = CallFaults(sys.argv[1])
    mesh = proc_mesh(n=2)
    victims = mesh.spawn("victim", Victim).get(20)
    pids = victims.pid.call().get(20).values()
    def error_of(function):
        try:
            return repr(function())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library."""
    return library(tmp_path_factory.mktemp("library"))


def program(script: str, built: Path, folder: Path) -> Program:
    return Program(HEAD + script, folder, str(folder / "faults"), env=environment_with(built, folder))


NO_MEMORY = """
    sizes = iter(range(19, 30))
    def both_ways():
        array = numpy.arange(1 << next(sizes))  # each time larger than what has been free since
        found = victims.apply.call(numpy.negative, array).get(20).values()
        return [[value.nbytes, int(value.sum())] for value in found] == [[array.nbytes, -int(array.sum())]] * 2
    def refusals():
        return current_runtime().store.statistics()["refusals"]
    told = []
    for number in (errno.ENOSPC, errno.ENOMEM):
        for process in (os.getpid(), pids[0]):
            before = refusals()
            with faults.failing(process, "posix_fallocate64", number, times=10**6):
                told.append([both_ways(), faults.failed > 0, (refusals() > before) == (process == os.getpid())])
                if process == os.getpid():
                    tell(**{f"put{number}": error_of(lambda: put(numpy.ones(1 << next(sizes))))})
    tell(told=told, after=both_ways())
"""


@pytest.mark.slow
@pytest.mark.row("O4")
def test_no_room_for_shared_memory(built: Path, tmp_path: Path) -> None:
    """Arguments and results travel through the links; `put`, which has no other way, names what is short."""
    with program(NO_MEMORY, built, tmp_path) as running:
        assert running.told("told") == [[True] * 3] * 4
        assert running.told("after")
        assert "No space left on device" in running.told(f"put{errno.ENOSPC}")
        assert "Cannot allocate memory" in running.told(f"put{errno.ENOMEM}")
        assert running.ends() == 0


NO_PROCESS = """
    (agent,) = agents()
    before = sorted(descendants(os.getpid()))
    with faults.failing(agent, "fork", errno.EAGAIN, skip=2, times=10**6):
        late = proc_mesh(n=4)
        told = [error_of(lambda: late.initialized.get(20)), error_of(lambda: late.spawn("v", Victim).get(20))]
    wait_until(lambda: sorted(descendants(os.getpid())) == before, 20)
    with faults.failing(agent, "fork", errno.ENOMEM, times=1):
        told.append(error_of(lambda: proc_mesh(n=1, preload=["json"]).initialized.get(20)))
    wait_until(lambda: sorted(descendants(os.getpid())) == before, 20)
    tell(told=told, same=victims.pid.call().get(20).values() == pids)
    tell(again=proc_mesh(n=4).spawn("v", Victim).echo.call(1).get(20).values())
"""


@pytest.mark.slow
@pytest.mark.row("O6")
def test_no_further_process(built: Path, tmp_path: Path) -> None:
    """The error of the spawn says so, and the ranks of that mesh that have started end."""
    with program(NO_PROCESS, built, tmp_path) as running:
        mesh, actor, preloaded = running.told("told")
        print(mesh, actor, preloaded, sep="\n")
        assert mesh.startswith("SpawnError") and "Resource temporarily unavailable" in mesh
        assert actor.startswith("SpawnError") and "Resource temporarily unavailable" in actor
        assert preloaded.startswith("SpawnError") and "Cannot allocate memory" in preloaded
        assert running.told("same") and running.told("again") == [1] * 4
        assert running.ends() == 0


JUMPS = """
    def clock():
        return time.time()
    def jump(number):
        faults.shift_clock((0, DAY, -DAY)[number % 3])
    here, there = clock(), victims.apply.call(clock).get(20).values()[0]
    jump(1)
    tell(jumped=[round((now - then) / DAY) for now, then in
                 ((clock(), here), (victims.apply.call(clock).get(20).values()[0], there))])
    pending = mesh.spawn("waiting", Victim).wait_for.call(sys.argv[1] + ".gate")
    for number in range(60):
        jump(number)
        assert victims.echo.call(number).get(20).values() == [number] * 2
        if number % 20 == 0:
            assert victims.apply.call(numpy.sum, numpy.ones(1 << 17)).get(20).values() == [1 << 17] * 2
            with proc_mesh(n=1) as other:
                assert other.spawn("v", Victim).echo.call_one(1).get(20) == 1
    # A time-out takes its time, neither more nor less.
    jump(1)
    begin = time.monotonic()
    threading.Timer(0.1, jump, [2]).start()
    try:
        pending.get(0.5)
    except CallTimeout:
        tell(waited=time.monotonic() - begin)
    # Another program, a day later, takes nothing of this one for left behind.
    jump(1)
    code = "from meshrt import proc_mesh; proc_mesh(n=1).initialized.get(20)"
    tell(other=subprocess.run([sys.executable, "-c", code]).returncode)
    assert os.path.exists(current_runtime().directory)
    open(sys.argv[1] + ".gate", "w").close()
    tell(pending=pending.get(20).values(), same=victims.pid.call().get(20).values() == pids)
"""


@pytest.mark.slow
@pytest.mark.row("N11")
def test_the_clock_of_the_day_jumps(built: Path, tmp_path: Path) -> None:
    """In the script, the agent and the ranks, by a day, while calls run: nothing is late, early or taken for dead."""
    with program(JUMPS, built, tmp_path) as running:
        assert running.told("jumped") == [1, 1]
        assert 0.5 <= running.told("waited") < 10
        assert running.told("other") == 0
        assert running.told("pending") == [0, 1] and running.told("same")
        assert running.ends() == 0
        assert running.output == ""
