"""Scripts with meshes as workers of a real ``torchrun``: what its own summary names as the root cause."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.free_port import free_port
from tests.support.programs import environment, run_python

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

PRELUDE = """\
import contextlib, ctypes, os, pickle, socket, subprocess, sys, time
from pathlib import Path
import meshrt
from meshrt import Actor, current_rank, endpoint, proc_mesh

worker = int(os.environ["RANK"])
here = Path(__file__).parent

def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)

def listen():
    listener = socket.create_server(("127.0.0.1", 0))
    (here / f".port-{worker}").write_text(str(listener.getsockname()[1]))
    (here / f".port-{worker}").rename(here / f"port-{worker}")
    return listener.accept()[0]

def connect(to):
    wait_until((here / f"port-{to}").exists)
    return socket.create_connection(("127.0.0.1", int((here / f"port-{to}").read_text())))

def receive(peer):
    data = b""
    while part := peer.recv(1 << 16):
        data += part
    if not data:
        raise EOFError("the peer has closed its connection")
    return data

class Trainer(Actor):
    @endpoint
    def train(self, to, crash):
        if current_rank().rank != 2:
            time.sleep(60)
        peers = [connect(other) for other in to]
        wait_until(lambda: time.time() % 1 < 0.3)  # what follows from it fails in the same second
        if crash:
            ctypes.string_at(0)
        raise ValueError("bad batch")

"""


@dataclass
class Failure:
    """One entry of the summary of ``torchrun``."""

    rank: int
    exit_code: int
    text: str


@dataclass
class Summary:
    """What ``torchrun`` prints at its end."""

    root: Failure
    others: dict[int, Failure]


def start(tmp_path: Path, main: str, *options: str, run: str = "", **env: str) -> subprocess.Popen[str]:
    """Start ``torchrun`` with a script."""
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + main)
    command = [sys.executable, "-m", "torch.distributed.run", f"--log-dir={tmp_path / 'logs'}", *options]
    command += ["-m", *run.split(), str(script)] if run else [str(script)]
    settings = environment(MESHRT_RUNS=str(tmp_path / "runs"), OMP_NUM_THREADS="1", **env)
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings
    )


def end(*launchers: subprocess.Popen[str]) -> list[Summary]:
    """Wait for the ends of all, and return what they say."""
    summaries = []
    try:
        for launcher in launchers:
            output, _ = launcher.communicate(timeout=90)
            print(output)
            assert launcher.returncode == 1
            summaries.append(summary(output))
    finally:
        for launcher in launchers:
            if launcher.poll() is None:
                launcher.send_signal(signal.SIGTERM)  # it ends its workers then
                launcher.communicate(timeout=60)
    return summaries


def summary(output: str) -> Summary:
    others, _, root = output[output.index("\nFailures:\n") :].partition("Root Cause (first observed failure):\n")
    found = [
        Failure(int(entry[1]), int(entry[2]), entry[3])
        for part in (root, others)
        for entry in re.finditer(
            r"^  rank +: (\d+) .*\n  exitcode +: (-?\d+) .*\n  error_file: .*\n  traceback : ((?:.*\n(?!\[\d+\]:))*)",
            part,
            re.M,
        )
    ]
    return Summary(found[0], {failure.rank: failure for failure in found[1:]})


def port() -> str:
    return f"--master-port={free_port()}"


def told(tmp_path: Path) -> dict[int, dict[str, object]]:
    """Return what the workers have written, by local rank."""
    return {int(path.parent.name): json.loads(path.read_text()) for path in tmp_path.glob("logs/*/*/*/error.json")}


@pytest.mark.slow
def test_the_cause_is_named_though_its_victim_ends_before_it_and_within_the_same_second(tmp_path: Path) -> None:
    """The script of the cause never comes to its report: the launcher stops it as soon as the victim has ended."""
    main = """
with contextlib.ExitStack() as last:
    if worker == 2:
        last.callback(time.sleep, 600)
    with proc_mesh(n=3, name="train") as mesh:
        if worker == 2:
            mesh.spawn("trainer", Trainer).train.call([0], crash=False).get()
        else:
            mesh.get()
            try:
                receive(listen())
            finally:
                (here / f"torch-{worker}").write_text(str("torch" in sys.modules))
"""
    (said,) = end(start(tmp_path, main, "--nproc-per-node=3", port()))
    assert (said.root.rank, said.root.exit_code) == (2, -signal.SIGTERM)
    assert "trainer.train() raised on rank 2 (n=2)" in said.root.text and "ValueError: bad batch" in said.root.text
    assert said.others[0].exit_code == 1
    assert re.match(r"worker 2 had failed before: .*ValueError: bad batch\n", said.others[0].text)
    assert "EOFError: the peer has closed its connection" in said.others[0].text
    assert said.others[1].text.startswith("Signal 15")  # it did not fail
    documents = told(tmp_path)
    assert set(documents) == {0, 2}
    seconds = [int(documents[rank]["message"]["extraInfo"]["timestamp"]) for rank in (2, 0)]  # type: ignore[index]
    assert seconds[0] < seconds[1]
    assert (tmp_path / "torch-0").read_text() == "False"


@pytest.mark.nightly
def test_a_rank_crashes(tmp_path: Path) -> None:
    """The whole report is the launcher's traceback, and what it tells its own launcher in turn holds the record."""
    main = """
with proc_mesh(n=3, name="train") as mesh:
    if worker == 1:
        mesh.spawn("trainer", Trainer).train.call([0], crash=True).get()
    mesh.get()
    receive(listen())
"""
    above = tmp_path / "above.json"
    (said,) = end(start(tmp_path, main, "--nproc-per-node=2", port(), TORCHELASTIC_ERROR_FILE=str(above)))
    assert (said.root.rank, said.root.exit_code) == (1, 1)
    assert "ROOT CAUSE  trainer rank 2 (n=2) on " in said.root.text and "was killed by SIGSEGV" in said.root.text
    assert re.search(
        r'stack    Fatal Python error: Segmentation fault [^=]*train.py", line \d+ in train\n', said.root.text
    )
    record = json.loads(above.read_text())
    assert record["message"]["message"].startswith("trainer rank 2 (n=2) on ") and record["message"]["errorCode"] == 1
    assert record["meshrt"]["records"][0]["signal"] == signal.SIGSEGV and record["meshrt"]["worker"]["rank"] == 1


@pytest.mark.nightly
def test_a_script_itself_crashes(tmp_path: Path) -> None:
    main = """
def crash():
    peer = connect(0)
    wait_until(lambda: time.time() % 1 < 0.3)
    ctypes.string_at(0)

with proc_mesh(n=1) as mesh:
    mesh.get()
    receive(listen()) if worker == 0 else crash()
"""
    (said,) = end(start(tmp_path, main, "--nproc-per-node=2", port(), run="meshrt run"))
    assert (said.root.rank, said.root.exit_code) == (1, -signal.SIGSEGV)
    assert re.match(r"the script \(pid \d+\) was killed by SIGSEGV\n", said.root.text)
    assert re.search(r'File ".*train.py", line \d+ in crash\n', said.root.text)


@pytest.mark.nightly
def test_the_cause_is_on_another_node(tmp_path: Path) -> None:
    """Each launcher names one of its own workers: where the cause is not, the one whose error carries it."""
    main = """
def has_told(folder, local):
    return lambda: list(folder.glob(f"logs/*/*/{local}/error.json"))

with contextlib.ExitStack() as last:
    if worker == 3:
        with proc_mesh(n=3, name="train") as mesh:
            trainer = mesh.spawn("trainer", Trainer)
            peers = {other: connect(other) for other in (0, 2)}
            try:
                trainer.train.call([], crash=False).get()
            except ValueError as error:
                peers[0].sendall(pickle.dumps(error))
                peers[0].close()
                last.callback(wait_until, has_told(here / "second", 0))
                last.callback(peers[2].close)
                raise
    elif worker == 0:
        peer = connect(1)
        last.callback(wait_until, has_told(here, 1))
        last.callback(peer.close)
        with proc_mesh(n=1, name="loader") as mesh:
            mesh.get()
            raise RuntimeError("no batches any more") from pickle.loads(receive(listen()))
    else:
        meshrt.record(receive)(listen())
"""
    address = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1", port()]
    second = tmp_path / "second"
    second.mkdir()
    here, there = end(
        start(tmp_path, main, *address, "--node-rank=0"),
        start(second, f"here = Path({str(tmp_path)!r})\n{main}", *address, "--node-rank=1"),
    )
    assert there.root.rank == 3 and "ROOT CAUSE  trainer rank 2 (n=2) on " in there.root.text
    assert there.others[2].text.startswith("worker 3 had failed before: ")
    assert here.root.rank == 0
    assert re.search(r"ROOT CAUSE  trainer rank 2 \(n=2\) on .*\n +what +ValueError: bad batch\n", here.root.text)
    assert re.match(r"worker 0 had failed before: .*rank 2 \(n=2\) on .*: ValueError: bad batch\n", here.others[1].text)


CHILD = """\
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    raise LookupError("no shard 7")

main()
"""


@pytest.mark.nightly
def test_a_child_says_why_it_fails_and_its_parent_says_more(tmp_path: Path) -> None:
    """The child writes by torch's own hand, and not where its parent does; the parent has no mesh."""
    (tmp_path / "child.py").write_text(CHILD)
    main = """
@meshrt.record
def main():
    subprocess.run([sys.executable, str(here / "child.py")], check=True)

main()
"""
    (said,) = end(start(tmp_path, main, "--nproc-per-node=1", port()))
    assert said.root.rank == 0 and "subprocess.CalledProcessError: Command" in said.root.text
    assert "\n    wrote    LookupError: no shard 7\n" in said.root.text
    (document,) = told(tmp_path).values()
    assert document["message"]["message"].startswith("subprocess.CalledProcessError: ")  # type: ignore[index]


@pytest.mark.slow
def test_torchs_own_record_in_a_rank_is_read(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    main = """
class Runner(Actor):
    @endpoint
    def run(self):
        import runpy
        runpy.run_path(str(here / "child.py"), run_name="__main__")

with proc_mesh(n=1, name="train") as mesh:
    mesh.spawn("runner", Runner).run.call().get()
"""
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + main)
    mine = tmp_path / "error.json"
    env = {"MESHRT_RUNS": str(tmp_path / "runs"), "RANK": "0", "TORCHELASTIC_ERROR_FILE": str(mine)}
    done = run_python(str(script), env=environment(**env))
    assert done.returncode == 1
    wrote = done.stderr[done.stderr.index("  wrote    LookupError: no shard 7\n    ") :]
    assert 'raise LookupError("no shard 7")' in wrote
    assert os.listdir(tmp_path).count("error.json") == 1
    assert json.loads(mine.read_text())["message"]["message"].startswith("runner rank 0 (n=0) on ")


@pytest.mark.nightly
def test_a_thread_of_a_script_fails_and_its_victim_ends_first(tmp_path: Path) -> None:
    """The main thread of the cause goes on until the launcher stops it."""
    main = """
import threading

def load(peer):
    with peer:
        wait_until(lambda: time.time() % 1 < 0.3)
        raise ValueError("bad shard")

with proc_mesh(n=1, name="train") as mesh:
    mesh.get()
    if worker == 0:
        receive(listen())
    else:
        threading.Thread(target=load, args=(connect(0),), name="loader").start()
        time.sleep(600)
"""
    (said,) = end(start(tmp_path, main, "--nproc-per-node=2", port()))
    assert (said.root.rank, said.root.exit_code) == (1, -signal.SIGTERM)
    assert "ValueError: bad shard" in said.root.text
    assert re.match(r"worker 1 had failed before: .*ValueError: bad shard\n", said.others[0].text)


@pytest.mark.nightly
def test_a_thread_of_a_decorated_script_fails_and_the_script_ends_well(tmp_path: Path) -> None:
    main = """
import threading

def load():
    raise ValueError("bad shard")

@meshrt.record
def main():
    if worker == 1:
        threading.Thread(target=load).start()

main()
"""
    (said,) = end(start(tmp_path, main, "--nproc-per-node=2", port()))
    assert (said.root.rank, said.root.exit_code) == (1, 1)
    assert "ValueError: bad shard" in said.root.text
