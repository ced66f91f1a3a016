"""The pytest plug-in, in runs of pytest of their own."""

from __future__ import annotations

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


def ran(folder: Path, *tests: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a file of tests; return the exit status of pytest and what it has printed."""
    (folder / "test_it.py").write_text("\n\n".join((JOB, *tests)))
    words = ("-m", "pytest", "-q", "-p", "no:meshrt", "-p", "meshrt.pytest_plugin", "-p", "no:cacheprovider", *options)
    done = run_python(*words, str(folder / "test_it.py"), cwd=folder)
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
        "def test_fails(meshrt_mesh):\n    meshrt_mesh(n=2).spawn('job', Job).step.call(2).get(20)",
        options=("-o", f"meshrt_frames={shows}"),
    )
    assert status == 1
    assert ("meshrt/mesh/future.py" in said) == shows
    report = said.partition("Captured meshrt call")[2]
    assert "ROOT CAUSE  all 2 ranks failed alike" in report and "what     ValueError: loss is 2" in report


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
    assert "test_never ___" in said and "at call 9 of step() has not happened: it has had 1 of them" in said
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
