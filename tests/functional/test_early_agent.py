"""The agent that `proc_mesh` starts before it loads the root."""

from __future__ import annotations

from tests.support.programs import run_python

PROGRAM = """
import os, sys
import meshrt, psutil
import meshrt.engine.agent_process as starting
from meshrt import Actor, endpoint, proc_mesh

class Worker(Actor):
    @endpoint
    def pid(self):
        return os.getppid()

started, start = [], starting.start_agent
def noted(mark):
    started.append((mark, "meshrt.mesh.root" in sys.modules))
    return start(mark)
starting.start_agent = noted
"""


def ran(code: str) -> str:
    """Return what a program prints, which ends well."""
    done = run_python("-c", PROGRAM + code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_mesh_takes_it_and_later_ones_use_it() -> None:
    ran(
        "for _ in range(2):\n"
        "    worker = proc_mesh(gpus=1).spawn('worker', Worker)\n"
        "    assert [each.pid for each in psutil.Process().children()] == [worker.pid.call_one().get()]\n"
        "from meshrt.mesh.program import start_root\n"
        "assert started == [(f'{start_root().run.run_id}.0', False)], started\n"
    )


def test_it_ends_if_the_mesh_cannot_be_made() -> None:
    ran(
        "try:\n    proc_mesh(gpus=0)\nexcept meshrt.UsageError as error:\n    assert 'gpus' in str(error)\n"
        "assert len(started) == 1 and not psutil.Process().children()\n"
        "assert proc_mesh(gpus=1).spawn('worker', Worker).pid.call_one().get() in "
        "[each.pid for each in psutil.Process().children()]\n"
    )


def test_none_is_started_for_another_engine() -> None:
    ran(
        "from meshrt import LocalEngine\n"
        "proc_mesh(hosts=2, engine=LocalEngine(2)).spawn('worker', Worker).pid.call().get()\n"
        "assert len(started) == 2 and all(root_is_loaded for _, root_is_loaded in started), started\n"
    )


def test_what_keeps_an_agent_from_starting_is_told_by_the_mesh() -> None:
    said = ran(
        "sys.executable = '/nowhere/python'\n"
        "try:\n    proc_mesh(gpus=1)\nexcept OSError as error:\n    print(error)\n"
        "assert not psutil.Process().children()\n"
    )
    assert "/nowhere/python" in said
