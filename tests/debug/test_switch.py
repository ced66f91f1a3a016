"""A program whose debugger is switched off: nothing stops there, and nobody runs code in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.programs import environment, run_python

WAIT = 60
OFF = (
    "the debugger of this program is switched off (MESHRT_DEBUG=off); what only looks still works: where, list, "
    "status, logs, memory, vars"
)
PROGRAM = """
import sys
from meshrt import Actor, breakpoint as stop_here, endpoint, proc_mesh

class Trainer(Actor):
    @endpoint
    def stops(self) -> int:
        breakpoint()
        stop_here()
        return 1

    @endpoint
    def raises(self) -> None:
        raise ValueError("no")

trainers = proc_mesh(n=2, dap=0).spawn("trainer", Trainer).get()
assert trainers.stops.call().get().values() == [1, 1]
try:
    trainers.raises.call().get()
except ValueError:
    print("up", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_debugger_that_is_switched_off() -> None:
    env = environment(MESHRT_DEBUG="off", MESHRT_POST_MORTEM="1")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env
    ) as program:
        try:
            assert program.stdout and program.stderr
            assert program.stdout.readline() == "up\n"
            assert program.stderr.readline() == f"meshrt: no IDE can attach at port 0: meshrt dap: {OFF}\n"
            debug = ("-m", "meshrt.debug", "--pid", str(program.pid), "-c")
            for line in (
                "p trainer 1",
                "interrupt trainer",
                "break x.py:1",
                "attach trainer 0",
                "cast trainer ranks(0) p 1",
                "postmortem on",
            ):
                done = run_python(*debug, line)
                assert done.returncode == 1 and OFF in done.stdout + done.stderr, line
            for line in ("where", "status", "memory", "logs trainer"):
                done = run_python(*debug, line)
                assert done.returncode == 0 and OFF not in done.stdout + done.stderr, line
            done = run_python("-m", "meshrt", "dap", str(program.pid), "--port", "0")
            assert done.returncode and done.stderr == f"meshrt dap: {OFF}\n"
            program.communicate("\n", timeout=WAIT)
            assert program.returncode == 0
        finally:
            program.kill()
