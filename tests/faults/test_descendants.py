"""What a rank starts ends with it: forked children, orphans, processes in sessions of their own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from meshrt import ActorMesh, ProcessDied, ProcMesh, proc_mesh
from meshrt.transport.kernel import kernel_state
from tests.faults.actors import Victim
from tests.faults.test_worker_death import SOON
from tests.faults.watch import LONG, agents, all_gone, descendants, is_alive
from tests.support.programs import run_python
from tests.support.waiting import wait_until

#: Seconds for the end of everything.
GONE = 2.0
KINDS = ["exec", "fork", "double"]


def one_victim(**options: object) -> tuple[ProcMesh, ActorMesh[Victim]]:
    mesh = proc_mesh(n=2, **options)  # type: ignore[arg-type]
    return mesh, mesh.spawn("victim", Victim).get(LONG)


def fork_in_c() -> int:
    """Fork as C code does: Python is not asked to close anything in the child."""
    pid: int = ctypes.PyDLL(None).fork()
    if pid == 0:
        while True:
            time.sleep(60)
    return pid


def sockets_of(pid: int) -> list[str]:
    """Return the sockets that a process holds, which may close them meanwhile."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(path))
    return [target for target in found if target.startswith("socket:")]


@pytest.mark.row("P13")
@pytest.mark.parametrize("how", ["in Python", "in C"])
def test_a_forked_child_that_outlives_its_rank_hides_no_death(how: str) -> None:
    """It keeps the sockets of its rank, and the error comes as soon as ever."""
    _, victims = one_victim()
    first = victims.slice(n=0)
    call = first.fork_child.call_one() if how == "in Python" else first.apply.call_one(fork_in_c)
    child = call.get(LONG)
    assert is_alive(child)
    if how == "in Python":
        wait_until(lambda: not sockets_of(child), LONG, "it closes what it has inherited")
    else:
        assert sockets_of(child)
    begin = time.monotonic()
    with pytest.raises(ProcessDied):
        first.die.call_one("sigkill").get(LONG)
    assert time.monotonic() - begin < SOON
    all_gone([child], GONE)
    assert victims.slice(n=1).echo.call_one(1).get(LONG) == 1


@pytest.mark.slow
@pytest.mark.row("P14")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["death", "stop", "program"])
def test_a_process_in_a_session_of_its_own_ends_too(kind: str, end: str, tmp_path: Path) -> None:
    """Whether its rank dies, its mesh is stopped, or the program ends."""
    import meshrt

    mesh, victims = one_victim()
    first = victims.slice(n=0)
    daemon = first.daemon.call_one(kind).get(LONG)
    assert os.getsid(daemon) not in (os.getsid(0), first.pid.call_one().get(LONG))
    if end == "death":
        os.kill(first.pid.call_one().get(LONG), signal.SIGKILL)
    elif end == "stop":
        mesh.stop()
        assert not is_alive(daemon)
    else:
        meshrt.shutdown_context()
    all_gone([daemon], GONE)


@pytest.mark.row("P14")
@pytest.mark.parametrize("end", ["death", "stop"])
def test_a_family_of_processes_ends(end: str) -> None:
    """Three generations, each in a session of its own, and forking while it is killed."""
    mesh, victims = one_victim()
    first = victims.slice(n=0)
    first.apply.call_one(start_family).get(LONG)
    pid = first.pid.call_one().get(LONG)
    wait_until(lambda: len(descendants(pid)) >= 3, LONG)
    (agent,) = agents()
    if end == "stop":
        mesh.stop()
        assert not descendants(agent)
        return
    second = victims.slice(n=1).pid.call_one().get(LONG)  # a wait behind the death would tell of it
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: [child for child in descendants(agent) if is_alive(child)] == [second], 2 * GONE)


def start_family() -> None:
    script = "setsid sh -c 'setsid sh -c \"while :; do sleep 0.01; done\" & while :; do sleep 0.01; done' & wait"
    subprocess.Popen(["sh", "-c", script], start_new_session=True)


def test_an_orphan_of_a_living_rank_lives_and_is_reaped() -> None:
    """It belongs to its rank: the death of another one is not its end, and it is no zombie when it ends."""
    _, victims = one_victim()
    orphan = victims.slice(n=0).apply.call_one(start_orphan).get(LONG)
    os.kill(victims.slice(n=1).pid.call_one().get(LONG), signal.SIGKILL)
    with pytest.raises(ProcessDied):
        wait_until(lambda: victims.slice(n=1).pid.call_one().get(LONG) and None, LONG)
    assert victims.slice(n=0).echo.call_one(1).get(LONG) == 1
    assert is_alive(orphan)
    os.kill(orphan, signal.SIGTERM)
    wait_until(lambda: not kernel_state(orphan), LONG, "the orphan is reaped")


@pytest.mark.slow
@pytest.mark.row("P14")
@pytest.mark.parametrize("preload", [(), ("json",)], ids=["forked", "preloaded"])
@pytest.mark.parametrize("end", ["death", "stop"])
def test_what_a_rank_detaches_ends_with_this_rank_and_with_no_other(end: str, preload: tuple[str, ...]) -> None:
    """Orphans in sessions of their own, forked or executed without an environment."""
    mesh, victims = one_victim(preload=preload)
    _, others = one_victim(preload=preload)
    first = victims.slice(n=0)
    other = victims.slice(n=1) if end == "death" else others.slice(n=0)
    own = [first.daemon.call_one("double").get(LONG), first.apply.call_one(detach).get(LONG)]
    foreign = [other.daemon.call_one("double").get(LONG), other.apply.call_one(detach).get(LONG)]
    pids = [each.pid.call_one().get(LONG) for each in (first, other)]  # a wait behind the death would tell of it
    if end == "death":
        os.kill(pids[0], signal.SIGKILL)
        all_gone(own, GONE)
    else:
        mesh.stop()
        assert not any(map(is_alive, own))
    assert all(map(is_alive, foreign))
    os.kill(pids[1], signal.SIGKILL)
    all_gone(foreign, GONE)


def detach() -> int:
    script = "sleep 600 >/dev/null 2>&1 & echo $!"
    command = ["setsid", "sh", "-c", script]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True, env={"PATH": os.environ["PATH"]}).stdout)


def test_an_orphan_that_nothing_tells_from_others_ends_with_the_last_rank() -> None:
    mesh, victims = one_victim()
    first = victims.slice(n=0)
    known, unknown = first.apply.call_one(detach).get(LONG), first.apply.call_one(detach).get(LONG)
    locks = 10
    resource.prlimit(unknown, locks, resource.prlimit(os.getpid(), locks))
    os.kill(first.pid.call_one().get(LONG), signal.SIGKILL)
    all_gone([known], GONE)
    assert is_alive(unknown)
    mesh.stop()
    assert not is_alive(unknown)


def start_orphan() -> int:
    command = ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 5), ("raise", 1)])
def test_a_forked_child_that_falls_through_is_no_second_rank(how: str, code: int) -> None:
    """It returns into the runtime, calls ``sys.exit`` or raises: it ends, and answers nobody's call."""
    _, victims = one_victim()
    first = victims.slice(n=0)
    assert first.fork_and_fall_through.call_one(how).get(LONG) == code
    assert [first.echo.call_one(value).get(LONG) for value in range(20)] == list(range(20))


def test_a_forked_child_that_is_told_to_end_at_once_ends() -> None:
    """Its rank handles SIGTERM; the child, which does not, must not lose one that comes while it is being forked."""
    _, victims = one_victim()
    assert victims.slice(n=0).apply.call_one(fork_and_terminate).get(LONG) == -signal.SIGTERM


def fork_and_terminate() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(60)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_multiprocessing_works_in_a_rank() -> None:
    _, victims = one_victim()
    assert victims.slice(n=0).apply.call_one(use_multiprocessing).get(LONG) == [0, 1, 4]
    assert victims.slice(n=0).echo.call_one(1).get(LONG) == 1


def use_multiprocessing() -> list[int]:
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(square, range(3))


def square(value: int) -> int:
    return value * value


SQUARE = "def square(value):\n    return value * value\n"
OF_SCRIPT = """
import multiprocessing, sys
from meshrt import Actor, endpoint, proc_mesh
{}
class Job(Actor):
    @endpoint
    def squares(self):
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            return pool.map(square, range(4))

print(proc_mesh(n=1).spawn("job", Job).squares.call_one().get(30))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_in_an_actor_of_the_script_works_with_functions_of_modules_and_says_so(
    method: str, tmp_path: Path
) -> None:
    (tmp_path / "squares.py").write_text(SQUARE)
    (tmp_path / "good.py").write_text(OF_SCRIPT.format("from squares import square"))
    (tmp_path / "bad.py").write_text(OF_SCRIPT.format(SQUARE))
    done = run_python(str(tmp_path / "good.py"), method)
    assert (done.stdout, done.stderr) == ("[0, 1, 4, 9]\n", "")
    failed = run_python(str(tmp_path / "bad.py"), method)
    assert failed.returncode == 1 and "PicklingError" in failed.stderr
    assert (
        "note     On a rank, __main__ is not the script. Put functions and classes for multiprocessing into a module "
        "beside the script.\n" in failed.stderr
    )


@pytest.mark.row("P17")
@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_ends_a_rank_after_what_it_does(busy: bool, tmp_path: Path) -> None:
    """A scheduler preempts one rank: its running call is answered, then it is gone, by SIGTERM."""
    _, victims = one_victim()
    first = victims.slice(n=0)
    pid = first.pid.call_one().get(LONG)
    if busy:
        call = first.wait_for.call_one(str(tmp_path / "gate"), str(tmp_path / "inside"))
        wait_until((tmp_path / "inside0").exists, LONG)
    os.kill(pid, signal.SIGTERM)
    if busy:
        assert victims.slice(n=1).echo.call_one(1).get(LONG) == 1
        assert is_alive(pid)
        (tmp_path / "gate").touch()
        assert call.get(LONG) == 0
    all_gone([pid], LONG)
    with pytest.raises(ProcessDied) as caught:
        wait_until(lambda: first.echo.call_one(1).get(LONG) and None, LONG)
    assert caught.value.signal == signal.SIGTERM and "SIGTERM" in str(caught.value)
