"""What a program leaves ends although an agent cannot open a file, is stopped, or was killed alone."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.transport.reserve import RESERVED
from tests.faults.actors import Victim
from tests.faults.test_descendants import GONE, detach
from tests.faults.watch import LONG, Program, agents, all_gone, descendants, is_alive
from tests.support.footprint import marked_processes
from tests.support.pausing import pause
from tests.support.tracing import held
from tests.support.waiting import wait_until

MESHES = """
    from tests.faults.test_descendants import detach
    victims = proc_mesh(n=3, preload=sys.argv[1:]).spawn("victim", Victim).get(20)
    first = victims.slice(n=0)
    daemons = [first.daemon.call_one(kind).get(20) for kind in ("exec", "fork", "double")]
    daemons += [victims.slice(n=1).fork_child.call_one().get(20), first.apply.call_one(detach).get(20)]
    tell(ranks=list(victims.pid.call().get(20).values()), daemons=daemons)
"""
WAIT = "    threading.Event().wait()\n"


def fill(pid: int) -> tuple[int, int]:
    """Leave a process no descriptor to open, whichever it closes but those in reserve; returns its limits before."""
    opened = {int(name): os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    spare = sorted(number for number, target in opened.items() if number > 2 and target == os.devnull)
    limit = spare[RESERVED - 1] + 1 if len(spare) >= RESERVED else 3
    assert all(number in opened for number in range(limit))
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
    return limits


@pytest.mark.row("C1")
def test_an_agent_without_descriptors_kills_everything_when_the_root_is_killed(tmp_path: Path) -> None:
    with Program(MESHES + WAIT, tmp_path) as program:
        everything = [*program.told("ranks"), *program.told("daemons"), *agents(program.pid)]
        (directory,) = Path(os.environ["MESHRT_RUNTIME_DIR"]).iterdir()
        fill(agents(program.pid)[0])
        program.signal(signal.SIGKILL)
        program.ends()
        all_gone(everything, GONE)
        wait_until(lambda: not marked_processes(), GONE)
        wait_until(lambda: not directory.exists(), GONE)


@pytest.mark.row("P14")
def test_an_agent_without_descriptors_kills_what_a_dead_rank_has_left() -> None:
    victims = proc_mesh(n=2).spawn("victim", Victim).get(LONG)
    first = victims.slice(n=0)
    own = [first.daemon.call_one("double").get(LONG), first.apply.call_one(detach).get(LONG)]
    other = victims.slice(n=1).apply.call_one(detach).get(LONG)
    pid = first.pid.call_one().get(LONG)
    fill(agents()[0])
    os.kill(pid, signal.SIGKILL)
    all_gone([pid, *own], GONE)
    assert is_alive(other)


@pytest.mark.row("C1")
@pytest.mark.parametrize("kind", ["forked", "preloaded"])
def test_the_root_is_killed_while_its_agent_is_stopped(kind: str, tmp_path: Path) -> None:
    """Each rank ends, one that is busy in C and one that is stopped as well; so does what they have detached."""
    note = tmp_path / "inside"
    busy = f"    victims.slice(n=1).hold_gil.broadcast(600, {str(note)!r})\n"
    preload = ["json"] if kind == "preloaded" else []
    with Program(MESHES + busy + WAIT, tmp_path, *preload) as program:
        ranks, daemons = program.told("ranks"), program.told("daemons")
        (agent,) = agents(program.pid)
        wait_until(note.exists, LONG)
        pause(ranks[2], agent)
        program.signal(signal.SIGKILL)
        program.ends()
        all_gone([*ranks, *daemons, agent], GONE)
        wait_until(lambda: not marked_processes(), GONE)


@pytest.mark.row("C1")
def test_ranks_end_with_the_root_while_their_agent_stays_stopped(tmp_path: Path) -> None:
    """Held by a tracer, as under a debugger, it does not go on: ranks end without it, with their process groups."""
    with Program(MESHES + WAIT, tmp_path) as program:
        ranks, daemons = program.told("ranks"), program.told("daemons")
        (agent,) = agents(program.pid)
        child = daemons[3]
        assert os.getpgid(child) == ranks[1]
        with held(agent):
            program.signal(signal.SIGKILL)
            program.ends()
            all_gone([*ranks, child], GONE)
            assert is_alive(agent)
        all_gone([*daemons, agent], LONG)


@pytest.mark.row("C7")
def test_what_has_cleared_its_environment_ends_with_an_agent_that_is_killed_alone() -> None:
    stranger = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
    try:
        victims = proc_mesh(n=2).spawn("victim", Victim).get(LONG)
        daemons = [victims.slice(n=rank).apply.call_one(detach).get(LONG) for rank in range(2)]
        (agent,) = agents()
        assert set(daemons) < set(descendants(agent))
        os.kill(agent, signal.SIGKILL)
        all_gone(daemons, 2 * GONE)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.row("C7")
def test_a_script_without_descriptors_looks_for_what_a_killed_agent_has_left(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Program(MESHES + f"    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n", tmp_path) as program:
        everything = [*program.told("ranks"), *program.told("daemons")]
        (agent,) = agents(program.pid)
        limits = fill(program.pid)
        os.kill(agent, signal.SIGKILL)
        all_gone(everything, 2 * GONE)
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, limits)
        gate.touch()
        program.ends()
