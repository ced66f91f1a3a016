"""The pytest plug-in, in runs of pytest of their own."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt import Actor, endpoint
from meshrt.pytest_plugin import MeshMaker
from tests.support.programs import run_python

WAIT = 20

JOB = """
import pytest, meshrt
from meshrt import Actor, endpoint, testing

class Job(Actor):
    @endpoint
    def step(self, loss):
        if loss > 1:
            raise ValueError(f"loss is {loss}")
        return loss
"""


class Job(Actor):
    @endpoint
    def step(self, loss: float) -> float:
        return loss


@pytest.fixture(autouse=True)
def one_after_the_other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Segments have no owner: those that one of these tests leaves would be found by another, in another worker."""
    with open(tmp_path_factory.getbasetemp().parent / "plugin.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ran(folder: Path, *tests: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a file of tests; return the exit status of pytest and what it has printed."""
    (folder / "test_it.py").write_text("\n\n".join((JOB, *tests)))
    words = ("-m", "pytest", "-q", "-p", "no:meshrt", "-p", "meshrt.pytest_plugin", "-p", "no:cacheprovider", *options)
    done = run_python(*words, str(folder / "test_it.py"), cwd=folder, seconds=100)
    return done.returncode, done.stdout


def test_a_mesh_for_one_test(meshrt_mesh: MeshMaker) -> None:
    jobs = meshrt_mesh(dp=2).spawn("job", Job)
    assert jobs.step.call(0.5).get(WAIT).values() == [0.5, 0.5]


def test_a_program_without_processes(tmp_path: Path) -> None:
    status, said = ran(
        tmp_path,
        "def test_here():\n    assert meshrt.this_proc().spawn('job', Job).step.call_one(0.5).get(20) == 0.5",
        "def test_program():\n    meshrt.context()\n    assert len(meshrt.this_host()) == 1",
    )
    assert status == 0 and "2 passed" in said, said


@pytest.mark.slow
def test_what_a_test_has_handled_is_no_failure(tmp_path: Path) -> None:
    status, said = ran(
        tmp_path,
        "def test_caught(meshrt_mesh):\n"
        "    with pytest.raises(ValueError, match='loss is 2'):\n"
        "        meshrt_mesh(n=2).spawn('job', Job).step.call(2).get(20)",
        "def test_singleton(meshrt_mesh):\n    meshrt.get_or_spawn('store', Job).get(20)",
        "def test_error_of_pythons(meshrt_mesh):\n    with pytest.raises(AttributeError):\n        meshrt_mesh().x()",
    )
    assert (status, said.count("FAILED"), said.count("ERROR")) == (0, 0, 0), said


@pytest.mark.slow
@pytest.mark.parametrize("shows", [False, True])
def test_a_failed_test_shows_the_report_and_no_frames_of_meshrt(shows: bool, tmp_path: Path) -> None:
    status, said = ran(
        tmp_path,
        # The report waits for both ranks, however slow the machine is.
        "from meshrt.failure import root\n\ndef test_fails(meshrt_mesh):\n    root._PATIENCE = root._QUIET = 3.0\n"
        "    meshrt_mesh(n=2).spawn('job', Job).step.call(2).get(20)",
        options=("-o", f"meshrt_frames={shows}"),
    )
    assert status == 1
    assert ("meshrt/mesh/future.py" in said) == shows
    report = said.partition("Captured meshrt call")[2]
    assert "ROOT CAUSE  all 2 ranks failed in the same way" in report and "what     ValueError: loss is 2" in report


@pytest.mark.slow
def test_what_a_test_leaves_is_its_error_and_not_that_of_the_next_one(tmp_path: Path) -> None:
    status, said = ran(
        tmp_path,
        "def test_unread(meshrt_mesh):\n"
        "    job = meshrt_mesh(n=1).spawn('job', Job)\n"
        "    call = job.step.call(3)\n"
        "    job.step.call(0).get(20)",
        "def test_broadcast(meshrt_mesh):\n"
        "    job = meshrt_mesh(n=1).spawn('job', Job)\n"
        "    job.step.broadcast(4)\n"
        "    job.step.call(0).get(20)",
        "def test_left(meshrt_mesh):\n"
        "    meshrt.proc_mesh(n=1, name='forgotten').spawn('job', Job).step.call(0).get(20)",
        "def test_last(meshrt_mesh):\n    meshrt_mesh(n=1).spawn('job', Job).step.call(0).get(20)",
    )
    assert status == 1
    unread, broadcast, left = (
        said.partition(f"at teardown of test_{name} ")[2].partition("ERROR at ")[0]
        for name in ("unread", "broadcast", "left")
    )
    assert "an error that nobody has read: job.step() raised on rank 0: ValueError: loss is 3" in unread
    assert "what     ValueError: loss is 4" in broadcast and "loss is 3" not in broadcast
    assert "meshes that the test has left running: forgotten" in left
    assert "4 passed, 3 errors" in said


@pytest.mark.slow
def test_a_fault_that_has_not_happened_is_an_error_of_a_test_that_passes(tmp_path: Path) -> None:
    kill = "faults=[testing.kill(1, at=testing.call('step', {}))]"
    status, said = ran(
        tmp_path,
        f"def test_never(meshrt_mesh):\n    meshrt_mesh(n=2, {kill.format(9)}).spawn('job', Job).step.call(0).get(20)",
        "def test_fails(meshrt_mesh):\n"
        f"    job = meshrt_mesh(n=2, {kill.format(2)}).spawn('job', Job)\n"
        "    job.step.call(0).get(20)\n"
        "    job.step.call(0).get(20)",
        f"def test_fails_before(meshrt_mesh):\n    meshrt_mesh(n=2, {kill.format(9)}).spawn('job', Job)\n    assert 0",
        "def test_does_not_raise(meshrt_mesh):\n"
        f"    job = meshrt_mesh(n=2, {kill.format(9)}).spawn('job', Job)\n"
        "    with pytest.raises(meshrt.ProcessDied):\n"
        "        job.step.call(0).get(20)",
    )
    assert status == 1 and "3 failed, 1 passed, 1 error" in said and "DID NOT RAISE" in said
    assert "test_never ___" in said and "at call 9 of step() has not happened; such calls so far: 1" in said
    assert "kill of rank 1 at call 2 of step(): has happened" in said.partition("Captured meshrt faults call")[2]
    assert "kill of rank 1 at call 9 of step(): has not happened" in said


@pytest.mark.slow
def test_the_report_of_a_test_has_no_failure_of_another_one(tmp_path: Path) -> None:
    status, said = ran(
        tmp_path,
        "def test_caught():\n"
        "    with testing.local(Job) as job, pytest.raises(ValueError, match='loss is 2'):\n"
        "        job.step.call_one(2).get(20)",
        "def test_fails():\n"
        "    with testing.local_mesh(gpus=3) as mesh:\n"
        "        mesh.spawn('job', Job).slice(gpus=1).step.call_one(3).get(20)",
    )
    assert status == 1 and "1 failed, 1 passed" in said
    assert "ROOT CAUSE  job rank 1 on" in said and "AMBIGUOUS" not in said
    assert "loss is 3" in said and "loss is 2" not in said.replace("match='loss is 2'", "")


LEAKS = """
import socket, subprocess, sys, threading
from multiprocessing import resource_tracker, shared_memory

kept, end = [], threading.Event()

class Taker(Actor):
    @endpoint
    def take(self, data):
        pass

def used(make):
    make(n=2).spawn('taker', Taker).take.call(bytes(1 << 20)).get(20)  # shared memory, which the program keeps

class Client:
    def __init__(self):
        self.connection = socket.create_server(("127.0.0.1", 0))

class Segments(Actor):
    @endpoint
    def make(self):
        segment = shared_memory.SharedMemory(create=True, size=100, name=sys.argv[0])
        resource_tracker.unregister(segment._name, "shared_memory")

def load():
    end.wait()  # @here
"""
#: Segments of tests beside this one, whose processes were killed, are nobody's: they cannot be told from its own.
WITHOUT_SEGMENTS = (
    LEAKS
    + """
from meshrt.testing import leaks
leaks._SEGMENTS = leaks.Path("/none")
"""
)
#: The code of a test, and what is said of it.
KINDS = {
    "thread": (
        "threading.Thread(target=load, name='loader', daemon=True).start()",
        r"thread \d+ loader, at \S+test_it\.py:\d+ in load\(\)",
    ),
    "socket": (
        "kept.append(Client())",
        r"descriptor \d+ -> socket:\[\d+\] at \('127\.0\.0\.1', \d+\), held by test_it\.Client",
    ),
    "file": ("kept.append(open(__file__))", r"descriptor \d+ -> \S+test_it\.py, held by test_it\.kept"),
    "child": (
        "kept.append(subprocess.Popen(['cat'], stdin=subprocess.PIPE))",
        r"descriptor \d+ -> pipe:\[\d+\], held by test_it\.kept\n  process \d+, a child \(cat\)",
    ),
    "ended": (
        "kept.append(subprocess.Popen(['true']))",
        r"process \d+, a child, which has ended, and has not been waited for",
    ),
}


@pytest.mark.slow
def test_what_a_test_leaves_in_its_process_is_its_error(tmp_path: Path) -> None:
    tests = [f"def test_{kind}(meshrt_mesh):\n    used(meshrt_mesh)\n    {code}" for kind, (code, _) in KINDS.items()]
    status, said = ran(tmp_path, WITHOUT_SEGMENTS, *tests, "def test_last(meshrt_mesh):\n    used(meshrt_mesh)")
    assert status == 1 and f"{len(KINDS) + 1} passed, {len(KINDS)} errors" in said
    for kind, (_, expected) in KINDS.items():
        text = said.partition(f"at teardown of test_{kind} ")[2].partition("ERROR at ")[0]
        assert re.search(rf"^the test has left these resources behind:\n  {expected}\n(?!  )", text, re.MULTILINE), text


@pytest.mark.slow
@pytest.mark.parametrize("reports", [True, False])
def test_a_segment_that_a_rank_leaves_is_reported_unless_that_is_off(reports: bool, tmp_path: Path) -> None:
    name = f"left-{os.getpid()}-{reports}"
    try:
        status, said = ran(
            tmp_path,
            LEAKS.replace("sys.argv[0]", repr(name)),
            "def test_it(meshrt_mesh):\n    meshrt_mesh(n=1).spawn('segments', Segments).make.call().get(20)",
            options=("-o", f"meshrt_leaks={reports}"),
        )
    finally:
        Path("/dev/shm", name).unlink()
    assert (f"  segment /dev/shm/{name} (100 bytes)\n" in said) is reports
    assert status == int(reports), said


@pytest.mark.slow
def test_what_goes_on_with_the_program_or_with_a_failed_test_is_no_leak(tmp_path: Path) -> None:
    status, said = ran(
        tmp_path,
        WITHOUT_SEGMENTS,
        "def test_fails(meshrt_mesh):\n    used(meshrt_mesh)\n    here = Client()\n    assert 0",
        "def test_singleton(meshrt_mesh):\n    used(meshrt_mesh)\n    meshrt.get_or_spawn('store', Job).get(20)",
        "def test_ends(meshrt_mesh):\n    used(meshrt_mesh)\n    meshrt.shutdown_context()",
        "def test_begins_anew(meshrt_mesh):\n"
        "    used(meshrt_mesh)\n    meshrt.shutdown_context()\n    used(meshrt_mesh)",
        "def test_closes(meshrt_mesh):\n"
        "    used(meshrt_mesh)\n    here = Client()\n    here.me = here\n    subprocess.run(['true'])",
    )
    assert status == 1 and "1 failed, 4 passed in" in said, said


def test_it_loads_nothing_of_meshrt_before_a_test_does(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_plain():\n"
        "    loaded = {name for name in sys.modules if name.partition('.')[0] == 'meshrt'}\n"
        "    assert loaded == {'meshrt', 'meshrt.files', 'meshrt.pytest_plugin'}\n"
        "    assert 'uvloop' not in sys.modules\n"
    )
    done = run_python("-m", "pytest", "-q", "-p", "no:meshrt", "-p", "meshrt.pytest_plugin", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
