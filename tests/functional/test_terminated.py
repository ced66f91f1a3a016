"""SIGTERM ends a script whose ranks hang: where they are is written down, and the end is that of SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

TRAINER = """
import os, sys, time
from meshrt import Actor, endpoint, proc_mesh

class Trainer(Actor):
    @endpoint
    def wait_for(self, gate):
        while not os.path.exists(gate):
            time.sleep(0.01)

"""
SCRIPT = f"""{TRAINER}
def fill(descriptor):
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(descriptor, True)

trainer = proc_mesh(n=2, name="train").spawn("trainer", Trainer).get()
if "full" in sys.argv:
    fill(2)
print("up", flush=True)
trainer.wait_for.call(sys.argv[1]).get()
print("back", flush=True)
sys.stdin.readline()
trainer.wait_for.call("/nowhere").get()
"""
#: The line that waits for ever.
LAST = len(SCRIPT.splitlines())
#: The same on an event loop, which is kept busy while the file "busy" exists.
AWAITS = f"""{TRAINER}
import asyncio, uvloop

async def step(trainer):
    await trainer.wait_for.call("/nowhere")

async def ping(other):
    while True:  # short waits beside the long one
        await other.wait_for.call("/")

def spin(gate):
    if os.path.exists(gate):
        print("spins", flush=True)
        while True:
            pass
    asyncio.get_running_loop().call_later(0.05, spin, gate)

async def main():
    trainer = await proc_mesh(n=2, name="train").spawn("trainer", Trainer)
    other = await proc_mesh(n=1).spawn("other", Trainer)
    print("up", flush=True)
    spin(sys.argv[2])
    await asyncio.gather(asyncio.create_task(step(trainer)), asyncio.create_task(ping(other)))

dict(asyncio=asyncio, uvloop=uvloop)[sys.argv[1]].run(main())
"""


def catches_sigterm(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM now."""
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) & 1 << signal.SIGTERM - 1)


@contextlib.contextmanager
def program(tmp_path: Path, *arguments: str, text: str = SCRIPT) -> Iterator[subprocess.Popen[str]]:
    """Run the script until its ranks have kept it waiting for a while."""
    script = tmp_path / "train.py"
    script.write_text(text)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment(MESHRT_RUNS=str(tmp_path / "runs")),
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None and running.stdout.readline() == "up\n"
            wait_until(lambda: catches_sigterm(running.pid), 40, "the handler is in place")
            yield running
        finally:
            running.kill()


def test_where_ranks_hang_is_kept_and_a_script_that_does_not_wait_has_no_handler(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with program(tmp_path, str(gate)) as running:
        assert running.stdout is not None and running.stdin is not None
        gate.touch()
        assert running.stdout.readline() == "back\n"
        assert not catches_sigterm(running.pid)
        running.stdin.write("\n")
        running.stdin.flush()
        wait_until(lambda: catches_sigterm(running.pid), 40, "the handler is in place again")
        running.terminate()
        _, err = running.communicate(timeout=40)
        assert running.returncode == -signal.SIGTERM
    ended, waited, *_, more = err.splitlines()
    assert ended.startswith("meshrt: ended by SIGTERM at ") and ended.endswith(f":{LAST}, in <module>")
    assert waited.startswith("meshrt: trainer.wait_for(): no answer from 2 of 2 (ranks 0-1)")
    assert more.startswith("meshrt: where all ranks were: meshrt postmortem ")
    kept = run_python("-m", "meshrt", "postmortem", env=environment(MESHRT_RUNS=str(tmp_path / "runs"))).stdout
    assert "meshrt: INTERRUPTED while waiting for" in kept and "train.py:9" in kept
    assert "s, when SIGTERM ended the script" in kept and "you interrupted" not in kept


def test_a_nursery_that_waits_for_the_end_of_its_calls(tmp_path: Path) -> None:
    """One of them has failed: the others are cancelled, and a plain endpoint runs on."""
    text = f"""{TRAINER}
    @endpoint
    def see(self, function):
        while all(frame.f_code.co_name != function for frame in sys._current_frames().values()):
            time.sleep(0.01)

    @endpoint
    def fail(self):
        raise ValueError("on purpose")

import meshrt
mesh = proc_mesh(n=2, name="train")
trainer, other = mesh.spawn("trainer", Trainer).get(), mesh.spawn("other", Trainer).get()
with meshrt.nursery() as calls:
    waits = calls.start(trainer.wait_for.call("/nowhere"))
    other.see.call("wait_for").get()  # else it would be cancelled before it runs
    print("up", flush=True)
    calls.start(other.fail.call())
"""
    with program(tmp_path, text=text) as running:
        running.terminate()
        _, err = running.communicate(timeout=40)
        assert running.returncode == -signal.SIGTERM
    assert "meshrt: trainer.wait_for(): no answer from 2 of 2 (ranks 0-1)" in err


def test_the_second_one_ends_it_at_once(tmp_path: Path) -> None:
    """Here, the report cannot be printed: nobody reads it."""
    with program(tmp_path, "/nowhere", "full") as running:
        running.terminate()
        wait_until(lambda: not catches_sigterm(running.pid), 40, "the default is in place again")
        assert running.poll() is None
        running.terminate()
        assert running.wait(40) == -signal.SIGTERM


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_script_that_awaits(tmp_path: Path, loop: str) -> None:
    with program(tmp_path, loop, str(tmp_path / "busy"), text=AWAITS) as running:
        running.terminate()
        _, err = running.communicate(timeout=40)
        assert running.returncode == -signal.SIGTERM
    ended, waited, *_, more = err.splitlines()
    line = AWAITS[: AWAITS.index("await trainer")].count("\n") + 1
    assert ended.startswith("meshrt: ended by SIGTERM at ") and ended.endswith(f":{line}, in step")
    assert waited.startswith("meshrt: trainer.wait_for(): no answer from 2 of 2 (ranks 0-1)")
    assert more.startswith("meshrt: where all ranks were: meshrt postmortem ")


def test_an_event_loop_that_does_not_come_back_ends_all_the_same(tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    with program(tmp_path, "asyncio", str(busy), text=AWAITS) as running:
        busy.touch()
        assert running.stdout is not None and running.stdout.readline() == "spins\n"
        running.terminate()
        assert running.wait(40) == -signal.SIGTERM
