"""An error of a rank that a task of the script lets out, and nobody awaits: the program has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import environment, run_python

HEAD = """
import asyncio, gc, os, signal
from meshrt import Actor, MeshStopped, endpoint, proc_mesh

class Trainer(Actor):
    @endpoint
    def fail(self): raise KeyError("on a rank")
    @endpoint
    def die(self): os.kill(os.getpid(), signal.SIGKILL)
    @endpoint
    def wait(self):
        import time
        time.sleep(600)

mesh = proc_mesh(n=1, name="train")
trainer = mesh.spawn("trainer", Trainer).get()

async def first(call):
    await call.call()

def in_a_thread(call):
    call.call().get()

async def done(task):
    await asyncio.wait([task])

"""


def run(tmp_path: Path, script: str) -> tuple[int, list[str]]:
    """Run a script; returns its status, and the lines of its standard error."""
    path = tmp_path / "script.py"
    path.write_text(HEAD + script)
    done = run_python(str(path), seconds=60, env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    return done.returncode, done.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["first(trainer.fail)", "asyncio.to_thread(in_a_thread, trainer.fail)"])
def test_what_a_rank_has_raised(tmp_path: Path, task: str) -> None:
    status, lines = run(tmp_path, f"async def main(): await done(asyncio.create_task({task}))\nasyncio.run(main())\n")
    assert status == 1
    assert "Task exception was never retrieved" in lines, "as Python says it"
    assert sum(line.startswith("ROOT CAUSE  trainer rank ") for line in lines) == 1, lines
    assert any("KeyError: 'on a rank'" in line for line in lines)


def test_the_loss_of_a_rank(tmp_path: Path) -> None:
    script = "async def main(): await done(asyncio.create_task(first(trainer.die)))\nasyncio.run(main())\n"
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any(line.startswith("ROOT CAUSE  trainer rank 0 ") for line in lines), lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "main",
    [
        "task = asyncio.create_task(first(trainer.fail)); await done(task); task.exception()",
        "await asyncio.gather(first(trainer.fail), first(trainer.fail), return_exceptions=True)",
    ],
)
def test_what_somebody_has_looked_at_is_no_failure(tmp_path: Path, main: str) -> None:
    assert run(tmp_path, f"async def main():\n    {main}\nasyncio.run(main())\n") == (0, [])


def test_what_the_script_has_stopped_is_no_failure(tmp_path: Path) -> None:
    script = """
async def main():
    task = asyncio.create_task(first(trainer.wait))
    await asyncio.sleep(0)
    await mesh.stop(0.1)
    await done(task)
asyncio.run(main())
"""
    status, lines = run(tmp_path, script)
    assert status == 0, lines
    assert "Task exception was never retrieved" in lines
    assert not any(line.startswith("ROOT CAUSE") for line in lines)


def test_a_handler_of_the_program_decides_itself(tmp_path: Path) -> None:
    script = """
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    await done(asyncio.create_task(first(trainer.fail)))
asyncio.run(main())
"""
    assert run(tmp_path, script) == (0, [])
