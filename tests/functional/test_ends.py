"""How a program ends: what the end cuts off or hides is said on the terminal, and is in the exit status."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python

#: Actors for the scripts below.
HEAD = """
import ctypes, os, signal, sys, threading, time
from meshrt import Actor, endpoint, proc_mesh

class Worker(Actor):
    def __init__(self, crash=""):
        self.crash = crash
    @endpoint
    def ready(self): pass
    @endpoint
    def pid(self): return os.getpid()
    @endpoint
    def sleep(self, begun=os.devnull):
        open(begun, "w").close()
        time.sleep(600)
    @endpoint
    def hold(self, begun):
        sleep = ctypes.PyDLL(None).sleep
        open(begun, "w").close()
        sleep(600)
    @endpoint
    def fail(self): raise ValueError("of its own")
    @endpoint
    def crash_later(self): self.crash = "signal"
    def __cleanup__(self, exc):
        if self.crash == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.crash == "exit":
            os._exit(7)

"""


def run(tmp_path: Path, script: str) -> tuple[int, list[str]]:
    """Run a script; returns its status, and the lines of its standard error."""
    path = tmp_path / "script.py"
    path.write_text(HEAD + script)
    done = run_python(str(path), seconds=60, env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    return done.returncode, done.stderr.splitlines()


def test_calls_that_have_not_left_the_script_are_not_counted_as_if_there_were_none(tmp_path: Path) -> None:
    script = """
worker = proc_mesh(n=1, name="train").spawn("worker", Worker).get()
worker.sleep.broadcast()
from meshrt.transport.process import current_runtime
driver, (mesh_id, *_) = current_runtime().driver, next(iter(current_runtime().driver._links))
sent = 0
while not driver.queues.unwritten(mesh_id):
    worker.ready.broadcast()
    sent += 1
print(sent, "were sent", file=sys.stderr)
"""
    status, (first, *lines) = run(tmp_path, script)
    assert status == 0
    # A rank that is slow may have taken all of them by now.
    some = lines[2].startswith("  at least ") and lines[2].endswith(" calls that had not started, sent to rank 0")
    assert some or lines[2] == f"  {first.split()[0]} calls that had not started, sent to rank 0", lines


def test_work_that_the_end_cuts_off_is_named(tmp_path: Path) -> None:
    script = f"""
begun = [{str(tmp_path)!r} + f"/{{rank}}" for rank in range(3)]
mesh = proc_mesh(n=3, name="train")
worker = mesh.spawn("worker", Worker).get()
worker.slice(n=0).sleep.broadcast(begun[0])
worker.slice(n=1).sleep.broadcast(begun[1])
worker.slice(n=0).ready.broadcast()
worker.slice(n=2).hold.broadcast(begun[2])
while not all(map(os.path.exists, begun)): time.sleep(0.01)
"""
    status, lines = run(tmp_path, script)
    assert status == 0
    assert lines == [
        "meshrt: unfinished work of train was terminated 0.5 s after the end of the program",
        "  worker.sleep() on ranks 0-1",
        "  1 call that had not started, sent to rank 0",
        "  rank 2: killed without an answer; the process was stopped, or C code held its GIL",
        "  to let calls finish: wait for them with get(), or give the mesh more time with stop(grace=SECONDS)",
    ]


def test_work_that_stop_cuts_off_is_named_and_what_an_error_ends_is_not(tmp_path: Path) -> None:
    script = """
first = proc_mesh(n=1, name="first")
first.spawn("worker", Worker).get().sleep.broadcast()
first.stop(grace=0.1)
second = proc_mesh(n=1, name="second")
second.spawn("worker", Worker).get().sleep.broadcast()
raise ValueError("of the script")
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert [line for line in lines if "unfinished work" in line] == [
        "meshrt: unfinished work of first was terminated 0.1 s after its stop()"
    ]
    assert "ValueError: of the script" in lines


def test_a_crash_in_cleanup_at_the_end_is_a_failure(tmp_path: Path) -> None:
    script = """
mesh = proc_mesh(n=2, name="train")
worker = mesh.spawn("worker", Worker).get()
worker.slice(n=1).crash_later.call_one().get()
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any(
        "train rank 1 (n=1)" in line and "killed by SIGSEGV while it was being stopped" in line for line in lines
    )
    assert any(line.startswith("ROOT CAUSE  worker rank 1 (n=1)") for line in lines)
    assert any("in __cleanup__" in line for line in lines)


def test_a_crash_behind_the_interrupt_of_an_error_is_said_and_the_error_stays_the_cause(tmp_path: Path) -> None:
    script = """
mesh = proc_mesh(n=1, name="train")
worker = mesh.spawn("worker", Worker, "exit").get()
raise ValueError("of the script")
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any("exited with code 7 while it was being stopped" in line for line in lines)
    assert not any(line.startswith("ROOT CAUSE") for line in lines)


#: Stops the agent, lets a rank fail, and waits until it has.
STOPPED = """
import tests.faults.watch as watch
from tests.support.pausing import pause
mesh = proc_mesh(n=2, name="train")
worker = mesh.spawn("worker", Worker).get()
pids = worker.pid.call().get().values()
(agent,) = watch.agents()
"""


@pytest.mark.row("C2c")
def test_an_agent_that_is_stopped_at_the_end_hides_no_failure(tmp_path: Path) -> None:
    script = f"""{STOPPED}
pause(agent)
os.kill(pids[1], signal.SIGKILL)
watch.wait_until(lambda: not watch.is_alive(pids[1]), 30)
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any("was stopped by a signal: it is resumed, as the program ends" in line for line in lines)
    assert any(line.startswith("ROOT CAUSE  worker rank 1 (n=1)") for line in lines)


@pytest.mark.row("C2c")
def test_an_agent_whose_stop_cannot_be_seen_yet_is_continued_too(tmp_path: Path) -> None:
    script = f"""{STOPPED}
from meshrt.engine import local
local.is_stopped = lambda pid: False  # as when the end comes right behind the signal
os.kill(agent, signal.SIGSTOP)
"""
    status, lines = run(tmp_path, script)
    assert (status, lines) == (0, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it attaches to the agent as a tracer")
@pytest.mark.row("C2c")
def test_an_agent_that_cannot_be_continued_makes_the_status_1(tmp_path: Path) -> None:
    script = f"""{STOPPED}
import subprocess, sys
trace = "import ctypes, os, sys; pid = int(sys.argv[1])\\n" \\
    "print(ctypes.CDLL(None).ptrace(16, pid, None, None), flush=True); sys.stdin.read()"
tracer = subprocess.Popen([sys.executable, "-c", trace, str(agent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert tracer.stdout.readline() == b"0\\n"  # PTRACE_ATTACH
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any("does not answer at the end of the program: failures on its ranks" in line for line in lines)


#: A rank of one host waits for one of another host, on a socket of its own; no call of the script waits for either.
PARTNERS = """
import socket
from pathlib import Path
import tests.faults.watch as watch
from meshrt import LocalEngine

class Partner(Worker):
    @endpoint
    def listen(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        return self.listener.getsockname()
    @endpoint
    def connect(self, address):
        self.partner = socket.create_connection(address)
    @endpoint
    def receive(self):
        if not self.partner.recv(1):
            raise ERROR
    @endpoint
    def fail(self):
        raise ValueError("of its own")

mesh = proc_mesh(hosts=2, engine=LocalEngine(2), name="train")
partner = mesh.spawn("partner", Partner).get()
second = partner.slice(hosts=1)
second.connect.call_one(partner.slice(hosts=0).listen.call_one().get()).get()

def recorded(text):
    runs = Path(os.environ["MESHRT_RUNS"])
    watch.wait_until(lambda: any(text in file.read_text() for file in runs.glob("*/failure-1.json")), 30)
"""


@pytest.mark.slow
@pytest.mark.row("C7")
@pytest.mark.parametrize("error", ["ConnectionResetError('gone')", "RuntimeError('no answer from my partner')"])
def test_a_victim_of_a_lost_host_is_not_the_root_cause(tmp_path: Path, error: str) -> None:
    script = f"""{PARTNERS.replace("ERROR", error)}
second.receive.broadcast()
os.kill(watch.agents()[0], signal.SIGKILL)
recorded('"kind": "host"')
recorded("receive")
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    roots = [line for line in lines if line.startswith(("ROOT CAUSE", "CANDIDATE"))]
    assert any("host " in line for line in roots)
    assert not any(line.startswith("ROOT CAUSE  partner") for line in roots)


@pytest.mark.row("C7")
def test_what_failed_before_a_host_was_lost_stays_the_root_cause(tmp_path: Path) -> None:
    script = f"""{PARTNERS.replace("ERROR", "EOFError")}
second.fail.broadcast()
recorded("of its own")
os.kill(watch.agents()[0], signal.SIGKILL)
recorded('"kind": "host"')
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    roots = [line for line in lines if line.startswith(("ROOT CAUSE", "CANDIDATE"))]
    assert len(roots) == 1 and roots[0].startswith("ROOT CAUSE  partner rank 1")


@pytest.mark.row("C7")
def test_a_lost_host_is_reported_though_the_record_of_what_a_rank_had_raised_is_lost_with_it(tmp_path: Path) -> None:
    script = """
import tests.faults.watch as watch
from meshrt.failure.record import Recorded
from meshrt.mesh.program import start_root
services = start_root().services
mesh = proc_mesh(n=2, name="train")
worker = mesh.spawn("worker", Worker).get()
start_root().script.load_failures()
services.on_report(Recorded, lambda *event: None)
worker.fail.broadcast()
watch.wait_until(lambda: services.unseen, 30)
os.kill(watch.agents()[0], signal.SIGKILL)
watch.wait_until(lambda: any(mesh.ended for mesh in services.meshes()), 30)
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any(line.startswith("ROOT CAUSE  host ") for line in lines), lines
    assert not any("not recorded" in line for line in lines)


AWAITING = """
import asyncio
from meshrt.transport.process import current_runtime

def interrupt():
    while not current_runtime().driver.waits.all():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

def worker():
    return proc_mesh(n=2, name="train").spawn("worker", Worker)

async def wait(call):
    threading.Thread(target=interrupt, daemon=True).start()
    await call

async def plain():
    made = await worker()
    await wait(made.sleep.call())

async def task():
    made = await worker()
    await asyncio.gather(asyncio.create_task(wait(made.sleep.call())), asyncio.sleep(600))

async def block():
    async with proc_mesh(n=1) as mesh:
        await wait((await mesh.spawn("worker", Worker)).sleep.call())

"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "count"),
    [
        pytest.param("asyncio.run(plain())", 2, id="awaited by the main task"),
        pytest.param("asyncio.run(task())", 2, id="awaited by another task"),
        pytest.param("asyncio.run(block())", 1, id="its mesh ends meanwhile"),
        pytest.param("made = worker().get()\nasyncio.run(wait(made.sleep.call()))", 2, id="the mesh was there before"),
    ],
)
def test_an_interrupt_under_asyncio_says_who_has_not_answered(tmp_path: Path, script: str, count: int) -> None:
    status, lines = run(tmp_path, AWAITING + script)
    assert status == -signal.SIGINT
    assert lines[0].startswith("meshrt: interrupted at ")
    assert lines[1].startswith(f"meshrt: worker.sleep(): no answer from {count} of {count} (rank")
    assert "Traceback (most recent call last):" not in lines


def test_a_cancellation_that_no_interrupt_has_caused_says_nothing(tmp_path: Path) -> None:
    script = f"""{AWAITING}
async def main():
    made = await worker()
    try:
        await asyncio.wait_for(made.sleep.call(), 0.1)
    except TimeoutError:
        raise KeyboardInterrupt
asyncio.run(main())
"""
    status, lines = run(tmp_path, script)
    assert status == -signal.SIGINT
    assert not any("no answer" in line for line in lines)


USING = """
class User(Actor):
    @endpoint
    def again_and_again(self, worker):
        while True:
            worker.ready.call().get()
    @endpoint
    def once(self, worker):
        worker.ready.call().get()

"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", ["user.again_and_again.broadcast(worker)", "call = user.again_and_again.call(worker)"])
def test_the_end_of_a_block_is_no_failure_of_who_uses_its_mesh(tmp_path: Path, sent: str) -> None:
    script = f"""{USING}
with proc_mesh(n=1, name="first") as first, proc_mesh(n=1, name="second") as second:
    user = first.spawn("user", User).get()
    worker = second.spawn("worker", Worker).get()
    {sent}
print("after", flush=True)
"""
    status, lines = run(tmp_path, script)
    assert (status, lines) == (0, [])


def test_a_use_that_begins_after_the_block_has_ended_is_a_failure(tmp_path: Path) -> None:
    script = f"""{USING}
with proc_mesh(n=1, name="first") as first:
    user = first.spawn("user", User).get()
    with proc_mesh(n=1, name="second") as second:
        worker = second.spawn("worker", Worker).get()
    from meshrt.mesh.program import start_root
    while True:  # what was under way when the end of the block is known has a second
        over = start_root().services.mesh(second.mesh_id).over
        if over and time.monotonic_ns() > over + 1_000_000_000:
            break
        time.sleep(0.01)
    user.once.broadcast(worker)
    user.once.call(worker).exception()
"""
    status, lines = run(tmp_path, script)
    assert status == 1
    assert any(line.startswith("ROOT CAUSE  user rank 0") for line in lines)
