"""``meshrt.connect``, and handles of other programs: two programs, each of which may end at any moment."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshrt
from meshrt import (
    Actor,
    ActorError,
    ActorMesh,
    CallTimeout,
    Disconnected,
    ProcessDied,
    ResultNotSerializable,
    UsageError,
    endpoint,
    proc_mesh,
)
from tests.support.actors import Echo
from tests.support.pausing import pause
from tests.support.programs import another_program, environment, run_python
from tests.support.waiting import wait_until

#: The job: one actor of a class that only it has, one of a class that can be imported, and a singleton.
JOB = """
import asyncio, os, pickle, sys
import numpy as np
import meshrt
from tests.support.actors import Echo

class Trainer(meshrt.Actor):
    "Trains."

    @meshrt.endpoint
    def step(self, batch: list[float], /, scale: float = 2.0, *, quiet=None) -> float:
        "One step."
        return sum(batch) * scale

    @meshrt.endpoint
    def double(self, array):
        return array * 2

    @meshrt.endpoint
    def stored(self):
        return meshrt.put(np.ones(1000), lazy=True)

    @meshrt.endpoint
    def fail(self):
        raise LookupError("no data")

    @meshrt.concurrent_endpoint
    async def wait(self):
        await asyncio.sleep(600)

    @meshrt.endpoint
    def pid(self):
        return os.getpid()

class Store(meshrt.Actor):
    @meshrt.endpoint
    def title(self):
        return "the store"

mesh = meshrt.proc_mesh(gpus=2)
trainer = mesh.spawn("trainer", Trainer).get()
echo = mesh.slice(gpus=1).spawn("echo", Echo, "hi").get()
meshrt.get_or_spawn("store", Store).get()
"""


@contextlib.contextmanager
def connected(code: str = JOB) -> Iterator[tuple[subprocess.Popen[str], meshrt.RunningProgram]]:
    """A running job, and a connection of this process to it. Its exit status has to be 0."""
    with another_program(code) as job:
        with meshrt.connect(job.pid) as program:
            yield job, program
        if job.poll() is None:
            job.communicate("\n", timeout=30)
            assert job.returncode == 0


def functions_of(thread: threading.Thread) -> set[str]:
    """Return the names of the functions in which a thread of this process is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return {each.f_code.co_name for each, _ in traceback.walk_stack(frame)} if frame is not None else set()


def test_a_notebook_calls_a_job_whose_classes_it_does_not_have() -> None:
    with connected() as (job, program):
        # The rank of the singleton answers the job, and tells the root of it, by different ways.
        wait_until(lambda: {mesh.name for mesh in program.actors} == {"trainer", "echo", "store"}, 20)
        assert program.pid == job.pid and f"program {job.pid}" in repr(program)
        trainer = program.actor("trainer")
        assert repr(trainer.step) == (
            "<endpoint trainer.step(batch: list[float], /, scale: float = 2.0, *, quiet = None) -> float on {gpus=2}>"
        ).replace("quiet = None", "quiet=None")
        assert trainer.step.call([1.0, 2.0]).get(20).values() == [6.0, 6.0]
        assert trainer.slice(gpus=1).step.call_one([1.0], scale=5).get(20) == 5.0
        with pytest.raises(TypeError, match="missing a required argument: 'batch'"):
            trainer.step.call()
        with pytest.raises(AttributeError, match="did you mean 'step'"):
            trainer.stepp  # noqa: B018
        # Large arrays go through the sockets, both ways.
        array = np.arange(1_000_000.0)
        assert np.array_equal(trainer.double.choose(array).get(20), array * 2)
        with pytest.raises(ResultNotSerializable, match="has no access to the shared memory"):
            trainer.stored.choose().get(20)
        assert trainer.pid.call().get(20).values()  # the link is as good as before
        assert program.actor("store").title.call_one().get(20) == "the store"
        echo = program.actor("echo", Echo)
        assert echo.greet.call_one("Ann").get(20) == "hi Ann!"
        with pytest.raises(UsageError, match="and lacks the endpoint 'apply'"):
            program.actor("trainer", Echo)
        with pytest.raises(UsageError, match=r"has no actor 'nope'; it has trainer, echo, store"):
            program.actor("nope")


def test_failures_of_its_calls_are_told_to_the_caller_alone() -> None:
    with connected() as (_job, program):
        trainer = program.actor("trainer")
        with pytest.raises(ActorError, match="LookupError: no data"):
            trainer.fail.call().get(20)
        with pytest.raises(CallTimeout, match="ranks 0-1"):
            trainer.wait.call().get(0.01)
        with pytest.raises(UsageError, match=r"belongs to program .*; only that program can stop it"):
            trainer.stop()
        with pytest.raises(UsageError, match="received from another process"):
            trainer.initialized.get(1)
    # `connected` has checked that the exit status of the job is 0.


def test_a_broadcast_that_fails_is_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    with connected() as (_job, program):
        program.actor("trainer").fail.broadcast()
        wait_until(lambda: "no data" in caplog.text, 20)


def test_the_end_of_the_job_fails_its_calls_and_names_it() -> None:
    mesh = proc_mesh(n=1)  # of this program, which is not touched
    own = mesh.spawn("echo", Echo)
    with connected() as (job, program):
        trainer = program.actor("trainer")
        trainer.pid.call().get(20)  # its links are open: what is called then may have run
        waiting = trainer.wait.call()
        results: list[BaseException | None] = []
        thread = threading.Thread(target=lambda: results.append(waiting.exception(30)))
        thread.start()
        assert own.echo.call_one(1).get(20) == 1
        os.kill(job.pid, signal.SIGKILL)
        thread.join(30)
        named = rf"program {job.pid} \(.*\) has ended"
        with pytest.raises(Disconnected, match=rf"trainer\.wait\(\) failed: {named} \(the call may have run\)"):
            waiting.get(20)
        assert isinstance(results[0], Disconnected)
        for failing in (lambda: trainer.pid.call(), lambda: program.actors):
            with pytest.raises(Disconnected, match=named):
                failing()
        job.wait(20)
    assert own.echo.call_one(2).get(20) == 2


def test_a_rank_that_dies_fails_the_call_as_everywhere() -> None:
    code = JOB + "\nmeshrt.unhandled_fault_hook = lambda failure: None\n"
    with connected(code) as (_job, program):
        trainer = program.actor("trainer")
        pid = trainer.slice(gpus=1).pid.call_one().get(20)
        waiting = trainer.wait.call()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ProcessDied, match=f"rank 1 .*pid {pid} was killed by SIGKILL"):
            waiting.get(20)
        _job.kill()
        _job.wait(20)


def test_an_actor_is_reached_although_its_first_rank_has_died() -> None:
    code = JOB + "\nmeshrt.unhandled_fault_hook = lambda failure: None\n"
    with connected(code) as (job, program):
        pid = program.actor("trainer").slice(gpus=0).pid.call_one().get(20)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 20)
        assert program.actor("trainer").slice(gpus=1).step.call_one([1.0]).get(20) == 2.0
        with meshrt.connect(job.pid) as another:
            assert "trainer" in {mesh.name for mesh in another.actors}


def test_an_actor_that_no_rank_has_begun_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "comes_late.py").write_text("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n")
    code = (
        f"import os\nos.chdir({str(tmp_path)!r})\nfrom meshrt import proc_mesh\nfrom tests.support.actors import Echo\n"
        "here = proc_mesh(n=1).spawn('here', Echo, 'hi').get()\n"
        "later = proc_mesh(n=1, preload=['comes_late']).spawn('later', Echo, 'hi')\n"
    )
    with connected(code) as (_job, program):
        wait_until(lambda: [mesh.name for mesh in program.actors] == ["here"], 5)  # not by a time-out of the other
        (tmp_path / "go").touch()


def test_an_actor_is_reached_although_the_rank_that_is_asked_dies() -> None:
    code = JOB + "\nmeshrt.unhandled_fault_hook = lambda failure: None\n"
    with connected(code) as (_job, program):
        pid = program.actor("trainer").slice(gpus=0).pid.call_one().get(20)
        pause(pid)
        reached: list[ActorMesh[Any]] = []
        thread = threading.Thread(target=lambda: reached.append(program.actor("trainer")))
        thread.start()
        wait_until(lambda: "_mesh" in functions_of(thread), 20)
        os.kill(pid, signal.SIGKILL)
        thread.join(20)
        assert reached[0].slice(gpus=1).step.call_one([1.0]).get(20) == 2.0


def test_a_closed_connection_fails_its_calls_and_leaves_the_job_alone() -> None:
    with connected() as (job, program):
        trainer = program.actor("trainer")
        waiting = trainer.wait.call()
        with meshrt.connect(job.pid) as second:
            assert second.actor("trainer").pid.call().get(20).values() == trainer.pid.call().get(20).values()
        program.close()
        with pytest.raises(Disconnected, match=r"the connection to program .* was closed"):
            waiting.get(20)
        with pytest.raises(Disconnected, match="was closed"):
            trainer.pid.call()
        with meshrt.connect(job.pid) as third:
            assert third.actor("trainer").pid.call().get(20).values()


CLIENT = """
import pickle, sys
import meshrt
with meshrt.connect() as program:
    trainer = program.actor("trainer")
    future = trainer.wait.call()
    for _ in range(100):
        trainer.double.broadcast(bytes(1 << 20))
    print("sent", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_client_that_dies_in_the_middle_of_its_calls_hurts_nobody() -> None:
    with connected() as (_job, program):
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        ) as client:
            assert client.stdout is not None
            client.stdout.readline()
            client.kill()
        assert program.actor("trainer").step.call([1.0]).get(20).values() == [2.0, 2.0]


@pytest.mark.slow
def test_a_failure_of_another_programs_call_is_not_said_to_be_handled() -> None:
    """Its caller got the error; whether that one handles it, the job does not know."""
    with connected() as (_job, program):
        assert isinstance(program.actor("trainer").slice(gpus=0).fail.call_one().exception(20), LookupError)
    kept = run_python("-m", "meshrt", "postmortem", program.run_id).stdout
    assert "LookupError: no data" in kept and "this failure did not end the program: the program continued" in kept
    assert "handled" not in kept


PUTS = """
import meshrt, sys
with meshrt.connect(int(sys.argv[1])) as program:
    try:
        meshrt.put(b"x")
    except meshrt.UsageError as error:
        print(error)
try:
    meshrt.put(b"x")
except meshrt.UsageError as error:
    print(error)
"""


@pytest.mark.slow
def test_what_is_put_here_is_not_shared_with_another_program() -> None:
    with connected() as (job, _program):
        first, second = run_python("-c", PUTS, str(job.pid)).stdout.splitlines()
    assert re.match(rf"put\(\): this process is connected to program {job.pid} \(.*\) and shares no memory", first)
    assert "pass the value itself to the call" in first
    assert "make a mesh with proc_mesh() first" in second


class Asker(Actor):
    """Calls another program from a rank of this one."""

    @endpoint
    def through(self, mesh: ActorMesh[Echo]) -> int:
        pid: int = mesh.pid.call_one().get(20)
        return pid

    @endpoint
    def connect(self, pid: int) -> str:
        with meshrt.connect(pid) as program:
            name: str = program.actor("store").title.call_one().get(20)
            return name


@pytest.mark.slow
def test_ranks_of_another_program_connect_and_handles_are_passed_on() -> None:
    with connected() as (job, program):
        askers = proc_mesh(n=2).spawn("asker", Asker)
        assert askers.connect.call(job.pid).get(30).values() == ["the store"] * 2
        echo = program.actor("echo", Echo)
        assert askers.through.call(echo).get(30).values() == [echo.pid.call_one().get(20)] * 2


@pytest.mark.slow
def test_which_program_is_meant() -> None:
    with pytest.raises(UsageError, match="no meshrt program of this user is running"):
        meshrt.connect()
    mesh = proc_mesh(n=1)
    mesh.initialized.get(20)
    with pytest.raises(UsageError, match="no other meshrt program"):
        meshrt.connect()
    with pytest.raises(UsageError, match="is the program of this process"):
        meshrt.connect(os.getpid())
    with pytest.raises(UsageError, match="PID 1 is not a meshrt program"):
        meshrt.connect(1)
    with another_program() as first, another_program() as second:
        with pytest.raises(UsageError, match=rf"2 programs are running(?s:.*)pid ({first.pid}|{second.pid}): python"):
            meshrt.connect()
        with meshrt.connect(first.pid) as program, meshrt.connect(program.run_id[:6]) as same:
            assert same.pid == first.pid and program.actors == []


@pytest.mark.slow
def test_programs_that_do_not_want_it() -> None:
    switched_off = "import os\nos.environ['MESHRT_DEBUG'] = '0'\n" + JOB
    with another_program(switched_off) as job, pytest.raises(UsageError, match="MESHRT_DEBUG=0"):
        meshrt.connect(job.pid)
    other_version = "import meshrt\nmeshrt.__version__ = '9.9'\n" + JOB
    with (
        another_program(other_version) as job,
        pytest.raises(UsageError, match=r"the script meshrt 9\.9"),
    ):
        meshrt.connect(job.pid)


#: Another program that uses a pickled handle, in its own script and in a fork of it.
USES = """
import os, pickle, sys
import meshrt
with open(sys.argv[1], "rb") as file:
    echo = pickle.load(file)
try:
    print(sorted(echo.echo.call(4).get(20).values()), flush=True)
    child = os.fork()
    if not child:
        print("fork", echo.echo.call(5).get(20).values(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("again", echo.echo.call(6).get(20).values(), flush=True)
except meshrt.MeshError as error:
    print(type(error).__name__, error)
"""


def test_a_pickled_handle_works_elsewhere_until_its_program_ends(tmp_path: Path) -> None:
    file = tmp_path / "handle"
    mesh = proc_mesh(n=2)
    file.write_bytes(pickle.dumps(mesh.spawn("echo", Echo).get(20)))
    done = run_python("-c", USES, str(file))
    assert done.stdout == "[4, 4]\nfork [5, 5]\nagain [6, 6]\n" and done.returncode == 0
    meshrt.shutdown_context()
    done = run_python("-c", USES, str(file))
    assert "echo belongs to program" in done.stdout or "echo failed: it belongs to program" in done.stdout
    assert "ended" in done.stdout and "was stopped" not in done.stdout
