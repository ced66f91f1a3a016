"""``meshrt run`` in processes that a launcher has started: they are ranks, and otherwise as they would have been."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshrt.spmd.parts import JOB_IGNORES
from tests.support.free_port import free_port
from tests.support.programs import environment
from tests.support.waiting import holds_within, wait_until

_SECONDS = 60
TRAIN = """\
import os, sys, time
rank = int(os.environ["RANK"])
loss = rank * 10
def step(number):
    time.sleep(0.02)
    return number
def train():
    number = 0
    while not os.path.exists(sys.argv[1]):
        number += step(1)
    print("trained", rank, flush=True)
if __name__ == "__main__":
    exec(sys.argv[2] if len(sys.argv) > 2 else "")
    train()
"""


@dataclass
class Ended:
    """One process that has ended."""

    status: int
    out: str
    err: str


@dataclass
class Job:
    """Processes as a launcher starts them: by their variables alone.

    Attributes:
        runtime: A runtime directory of its own: other programs are not seen.
        stop: A file at which the script `TRAIN` ends.
    """

    folder: Path
    runtime: str
    stop: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    port: int = field(default_factory=free_port)

    @property
    def env(self) -> dict[str, str]:
        return environment(MESHRT_RUNTIME_DIR=self.runtime, MESHRT_RUNS=str(self.folder / "runs"))

    def start(
        self,
        *words: str,
        ranks: int = 2,
        before: Sequence[str] = (),
        options: Sequence[str] = (),
        only: Sequence[int] = (),
        **variables: str,
    ) -> Job:
        """Start ``python -m meshrt BEFORE run OPTIONS WORDS`` on each rank, or some."""
        for rank in map(str, only or range(ranks)):
            env = {
                **self.env, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), **variables,
            }  # fmt: skip
            command = [sys.executable, "-m", "meshrt", *before, "run", *options, *words]
            self.processes.append(
                subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return self

    def train(
        self,
        code: str = "",
        *,
        ranks: int = 2,
        options: Sequence[str] = (),
        only: Sequence[int] = (),
        **variables: str,
    ) -> Job:
        """Start `TRAIN`, which executes ``code`` first."""
        path = self.folder / "train.py"
        path.write_text(TRAIN)
        return self.start(str(path), str(self.stop), code, ranks=ranks, options=options, only=only, **variables)

    def meshrt(self, *words: str, fails: bool = False) -> str:
        """Run a command beside the job; returns what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "meshrt", *words], env=self.env, capture_output=True, text=True, timeout=_SECONDS
        )
        assert fails or done.returncode == 0, done
        return done.stdout

    def wait_for(self, text: str, *words: str) -> None:
        """Wait until a command prints this."""
        said: list[str] = []

        def is_said() -> bool:
            said.append(self.meshrt(*words, fails=True))
            return text in said[-1]

        if not holds_within(_SECONDS, is_said):
            ended = {number: process.communicate() for number, process in enumerate(self.processes) if process.poll()}
            raise AssertionError(f"expected {text!r}; meshrt {shlex.join(words)} said {said[-1]!r}; ended: {ended}")

    def ended(self) -> list[Ended]:
        """Have `TRAIN` end, and wait for all processes."""
        self.stop.touch()
        found = []
        for process in self.processes:
            out, err = process.communicate(timeout=_SECONDS)
            found.append(Ended(process.returncode, out, err))
        return found

    def pids(self) -> list[int]:
        """Return the processes of the ranks."""
        record = json.loads(self.meshrt("ps", "-v", "--json"))
        return [row["pid"] for row in record["programs"][0]["rows"]]

    def root(self) -> psutil.Process:
        """Return the process of the program."""
        (program,) = json.loads(self.meshrt("ps", "--json"))["programs"]
        return psutil.Process(program["pid"])

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:  # the program has the standard error of the first one, until all have ended
            process.communicate(timeout=_SECONDS)
        wait_until(lambda: not any(Path(self.runtime).glob("p-*/root")), _SECONDS, "the end of the program")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        made = Job(tmp_path, runtime, tmp_path / "stop")
        try:
            yield made
        finally:
            made.close()


@pytest.mark.slow
def test_its_ranks_are_those_of_the_actor_main(job: Job) -> None:
    job.train(ranks=4, options=["--mesh", "dp=2,tp=2"])
    job.wait_for("4: 4 running", "ps")
    job.wait_for("[3] 30\n", "p", "main", "loss")  # the script has begun
    assert "run{dp=2,tp=2} main" in job.meshrt("ps")
    assert "train.py" in job.meshrt("ps", "--json")
    assert job.meshrt("p", "main", "ranks(dp=1)", "loss") == "[2] 20\n[3] 30\n"
    assert "4/4  all" in job.meshrt("where", "main")
    assert "4 ranks: " in job.meshrt("memory")
    kept = "4 ranks of {} (0-3): meshrt keeps no output of ranks that a launcher has started; the launcher has "
    kept += "their output\n"
    assert job.meshrt("logs") == kept.format("run")
    assert job.meshrt("debug", "-c", "logs main") == kept.format("main")
    (answer,) = json.loads(job.meshrt("logs", "--json"))["answers"]
    assert (answer["kind"], answer["ranks"], answer["text"]) == ("elsewhere", [0, 1, 2, 3], "")
    assert "COMMAND" in job.meshrt("ps") and f" {Path(sys.executable).name} " in job.meshrt("ps")
    job.meshrt("interrupt", "main", "ranks(tp=0)")
    job.meshrt("wait", "main", "ranks(tp=0)", "30")
    assert job.meshrt("cast", "main", "ranks(tp=0)", "p rank") == "[0] 0\n[2] 2\n"
    job.meshrt("continue")
    job.meshrt("break", "main", "train.py:6")
    job.meshrt("wait", "main", "30")
    assert job.meshrt("list").count("| main ") == 4 and "train.step" in job.meshrt("list")
    job.meshrt("clear")
    job.meshrt("continue")
    assert [(each.status, each.out) for each in job.ended()] == [(0, f"trained {rank}\n") for rank in range(4)]


@pytest.mark.slow
def test_top_timeline_and_vars_of_its_ranks(job: Job) -> None:
    job.train("kept = bytearray(50 << 20) if rank == 1 else b''")
    job.wait_for("[1] 52428800\n", "p", "main", "len(kept)")
    looked = json.loads(job.meshrt("top", "--once", "--json"))
    assert [(row["rank"], [each["actor"] for each in row["actors"]], row["pid"]) for row in looked["ranks"]] == [
        (rank, ["main"], pid) for rank, pid in enumerate(job.pids())
    ]
    assert looked["ranks"][1]["rss"] > looked["ranks"][0]["rss"] + (40 << 20)
    variables = job.meshrt("vars", "main", "-n", "1")
    assert "kept" in variables and "50.0 MiB" in variables, variables
    out = job.folder / "out.json"
    job.meshrt("timeline", str(out), "--seconds", "1")
    bars = [each for each in json.loads(out.read_text())["traceEvents"] if each["ph"] == "X"]
    assert {each["name"] for each in bars} >= {"main.run"}, bars
    assert [each.status for each in job.ended()] == [0, 0]


@pytest.mark.slow
def test_a_rank_that_raises_stops_there_with_its_variables(job: Job) -> None:
    job.train("def last():\n    batch = 7\n    raise ValueError('bad batch')\nif rank == 1: train(); last()")
    job.wait_for("2: 2 running", "ps")
    job.meshrt("postmortem", "on")
    job.stop.touch()
    job.wait_for("| main ", "list")
    assert "'batch', 7" in job.meshrt("debug", "-c", "attach main 1", "-c", "p 'batch', batch", "-c", "c")
    assert [each.status for each in job.ended()] == [0, 1]


@pytest.mark.slow
def test_a_breakpoint_stops_its_rank_alone(job: Job) -> None:
    job.train("if rank == 1: breakpoint()")
    job.wait_for("| main ", "list")
    assert job.meshrt("list").count("| main ") == 1
    assert "'rank', 1" in job.meshrt("debug", "-c", "attach main 1", "-c", "p 'rank', rank", "-c", "c")
    assert [each.status for each in job.ended()] == [0, 0]


@pytest.mark.slow
def test_a_breakpoint_for_all_stops_all_ranks(job: Job) -> None:
    job.train("import meshrt\nif rank == 1: meshrt.breakpoint(all=True, ranks='1')")
    job.wait_for("| main ", "list")  # before that, there may be no program
    wait_until(lambda: job.meshrt("list").count("| main ") == 2, _SECONDS, "both are stopped")
    job.meshrt("continue")
    assert [each.status for each in job.ended()] == [0, 0]


@pytest.mark.slow
def test_a_breakpoint_before_the_process_has_joined_waits_for_that(job: Job, tmp_path: Path) -> None:
    code = "import meshrt\nif rank == 1: meshrt.breakpoint(all=True, ranks='1')\n"
    # Rank 0 is there still when the breakpoint of rank 1, which has waited for it, stops it.
    code += f"while not os.path.exists({str(tmp_path / 'gate')!r}): time.sleep(0.01)"
    (late,) = job.train(code, only=[1]).processes
    assert late.stderr is not None
    for line in late.stderr:
        if line.startswith("meshrt: rank 1 is at a breakpoint and stops there once it has joined; not joined yet: "):
            break
    job.train(code, only=[0])
    wait_until(lambda: job.meshrt("list", fails=True).count("| main ") == 2, _SECONDS, "both are stopped")
    job.meshrt("continue")
    (tmp_path / "gate").touch()
    assert [each.status for each in job.ended()] == [0, 0]


def test_a_program_ends_whose_processes_were_killed_before_they_joined(job: Job) -> None:
    job.train()
    (first, second) = job.processes
    wait_until(lambda: _programs(job), _SECONDS, "the program is started")
    for process in (first, second):
        process.kill()  # and is not waited for: who reads all of its output first has a zombie meanwhile
    out, err = first.communicate(timeout=_SECONDS)
    assert (out, "Traceback" in err) == ("", False), err
    assert not _programs(job)


def _programs(job: Job) -> list[int]:
    """Return the processes that are the program of the job, as soon as they are started."""
    mark = f"MESHRT_RUNTIME_DIR={job.runtime}".encode()
    found = []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "meshrt-job":
            with contextlib.suppress(OSError):  # it has ended
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process.pid)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("sys.exit(3)", 3, "exited with code 3"),
        ("sys.exit('no data')", 1, "exited with code 1"),
        ("os._exit(4)", 4, "exited with code 4"),
        ("os.abort()", -signal.SIGABRT, "was killed by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "was killed by SIGKILL"),
        ("raise ValueError('bad batch')", 1, "ValueError: bad batch"),
    ],
)
def test_the_end_of_a_rank_is_that_of_its_process_and_reported(code: str, status: int, said: str, job: Job) -> None:
    job.train(f"if rank == 1:\n    import signal\n    {code}")
    job.processes[1].wait(_SECONDS)
    first, second = job.ended()
    assert (first.status, second.status) == (0, status)
    assert first.out == "trained 0\n" and second.out == ""
    report = first.err + second.err
    assert "meshrt: FAILED 1 of 2 ranks of run" in report and said in report.partition("ROOT CAUSE")[2], report


@pytest.mark.slow
def test_a_traceback_has_the_frames_of_the_script_alone(job: Job) -> None:
    job.train("raise ValueError('bad batch')")
    shown = job.ended()[1].err
    files = re.findall(r'^  File "([^"]*)"', shown.partition("meshrt:")[0], re.M)
    assert files == [str(job.folder / "train.py"), "<string>"], shown


def test_what_the_launcher_ends_after_a_failure_is_no_failure(job: Job) -> None:
    job.train("if rank == 1: raise ValueError('bad batch')", ranks=3)
    job.processes[1].wait(_SECONDS)
    for process in (job.processes[0], job.processes[2]):
        process.terminate()
        process.wait(_SECONDS)
    ended = job.ended()
    assert [each.status for each in ended] == [-signal.SIGTERM, 1, -signal.SIGTERM]
    assert "FAILED 1 of 3 ranks" in ended[0].err and "killed by SIGTERM" not in ended[0].err


@pytest.mark.slow
def test_signals_are_those_of_the_script(job: Job) -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(7)))
open(f"{sys.argv[1]}-{rank}", "w").close()
"""
    job.train(code)
    wait_until(lambda: all(Path(f"{job.stop}-{rank}").exists() for rank in range(2)), _SECONDS, "both train")
    job.processes[0].terminate()
    job.processes[1].send_signal(signal.SIGINT)
    for process in job.processes:
        process.wait(_SECONDS)
    first, second = job.ended()
    assert (first.status, first.out) == (7, "asked to end\n")
    assert second.status == -signal.SIGINT and "KeyboardInterrupt" in second.err


@pytest.mark.slow
def test_a_job_goes_on_when_its_program_is_gone(job: Job) -> None:
    job.train("if rank == 1: breakpoint()")
    job.wait_for("| main ", "list")
    job.root().kill()
    said = job.processes[0].stderr
    assert said is not None
    assert any("the program of this job has ended; its ranks continue without it" in line for line in said)
    assert [(each.status, each.out) for each in job.ended()] == [(0, "trained 0\n"), (0, "trained 1\n")]


def test_a_job_goes_on_where_no_program_can_be(job: Job) -> None:
    """It is told so once, and its script begins."""
    file = job.folder / "file"
    file.touch()
    job.train("import meshrt; print(meshrt.join(wait=0), flush=True)", MESHRT_RUNTIME_DIR=str(file / "r"))
    first, second = job.ended()
    assert [(each.status, each.out) for each in (first, second)] == [
        (0, f"False\ntrained {rank}\n") for rank in range(2)
    ]
    lines = (first.err + second.err).splitlines()
    assert len(lines) == 1 and lines[0].startswith("meshrt: this job is not visible to meshrt commands: "), lines


def test_a_single_rank_is_seen(job: Job) -> None:
    job.train(ranks=1)
    job.wait_for("[0] 0\n", "p", "main", "loss")
    assert "1: 1 running" in job.meshrt("ps")
    assert [(each.status, each.out, each.err) for each in job.ended()] == [(0, "trained 0\n", "")]


def test_a_script_without_a_launcher_is_seen(job: Job) -> None:
    (job.folder / "train.py").write_text(TRAIN)
    command = [sys.executable, "-m", "meshrt", "run", str(job.folder / "train.py"), str(job.stop)]
    env, pipe = {**job.env, "RANK": "0"}, subprocess.PIPE
    job.processes.append(
        subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    )
    job.wait_for("[0] 0\n", "p", "main", "loss")
    assert [(each.status, each.out, each.err) for each in job.ended()] == [(0, "trained 0\n", "")]


def test_a_script_that_joins_is_the_rank_that_it_is(job: Job) -> None:
    job.train("import meshrt; print(meshrt.join('other'), flush=True)")
    job.wait_for("2: 2 running", "ps")
    assert "run{hosts=1,gpus=2} main" in job.meshrt("ps") and "other" not in job.meshrt("ps")
    assert [(each.status, each.out) for each in job.ended()] == [(0, f"True\ntrained {rank}\n") for rank in range(2)]


@pytest.mark.nightly
def test_a_process_joins_late(job: Job) -> None:
    """The tools see it from then on: here the program is stopped until the script has begun."""
    (job.folder / "train.py").write_text(TRAIN)
    job.train()
    wait_until(lambda: _agent(job) is not None, _SECONDS, "the agent")
    agent = _agent(job)
    assert agent is not None
    agent.suspend()
    begun = time.monotonic()
    try:
        wait_until(lambda: time.monotonic() > begun + 6, 20, "the scripts begin")
    finally:
        agent.resume()
    job.wait_for("2: 2 running", "ps")
    assert job.meshrt("p", "main", "loss") == "[0] 0\n[1] 10\n"
    job.meshrt("interrupt", "main", "ranks(1)")
    job.wait_for("| main ", "list")
    job.meshrt("continue")
    first, second = job.ended()
    assert [each.status for each in (first, second)] == [0, 0]
    assert first.err.count("rank 0 has not joined: ") == first.err.count("joined now") == 1 and second.err == ""


def _agent(job: Job) -> psutil.Process | None:
    """The host agent, before any rank has joined."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_agent = any(word.endswith("agent_main.py") for word in process.info["cmdline"] or ())
        if is_agent and (process.info["environ"] or {}).get("MESHRT_RUNTIME_DIR") == job.runtime:
            return process
    return None


@pytest.mark.slow
def test_processes_of_a_rank_are_its_children(job: Job) -> None:
    """Forked and spawned ones work, and do not disturb it."""
    code = """
import multiprocessing
for kind in ("fork", "spawn", "forkserver"):
    context = multiprocessing.get_context(kind)
    queue = context.SimpleQueue()
    child = context.Process(target=worked, args=(queue,))
    child.start()
    assert queue.get() == os.getpid() or kind == "forkserver"
    child.join()
    assert child.exitcode == 0, kind
"""
    path = job.folder / "train.py"
    path.write_text(TRAIN.replace("if __name__", "def worked(queue):\n    queue.put(os.getppid())\nif __name__"))
    job.start(str(path), str(job.stop), code)
    job.wait_for("2: 2 running", "ps")
    assert [(each.status, each.out) for each in job.ended()] == [(0, f"trained {rank}\n") for rank in range(2)]


@pytest.mark.slow
def test_children_of_a_rank_are_shown_with_it(job: Job) -> None:
    made = "[subprocess.Popen(['sh', '-c', 'sleep 600; :'], start_new_session=True) for _ in range(2 * rank)]"
    end = "for each in made: atexit.register(os.killpg, each.pid, 9)"
    job.train(f"import atexit, subprocess\nmade = {made}\n{end}")
    job.wait_for("[1] 2\n", "p", "main", "len(made)")

    def children() -> list[list[int]]:
        record = json.loads(job.meshrt("ps", "-v", "--json"))
        return [row.get("children", []) for row in record["programs"][0]["rows"]]

    first, second = job.pids()

    def wanted(pid: int) -> set[int]:
        return {each.pid for each in psutil.Process(pid).children(recursive=True)}

    wait_until(lambda: len(wanted(second)) == 4, _SECONDS, "two shells and what they run")
    none, four = children()
    assert none == [] and wanted(first) == set() and set(four) == wanted(second) and len(four) == 4
    assert f"{four[0]} {four[1]} {four[2]} {four[3]}" in job.meshrt("ps", "-v")
    assert [each.status for each in job.ended()] == [0, 0]


@pytest.mark.slow
def test_an_interpreter_that_takes_its_time_to_end_is_no_rank_that_does_not_answer(job: Job) -> None:
    # With the GIL; a signal ends one of the pauses.
    hold = "lambda _self, hold=ctypes.PyDLL(None).usleep: [hold(900_000) for _ in range(8)]"
    job.train(f"import ctypes\nif rank == 1: slow = type('Slow', (), {{'__del__': {hold}}})()")
    job.wait_for("2: 2 running", "ps")
    assert [(each.status, "does not answer" in each.err) for each in job.ended()] == [(0, False), (0, False)]


@pytest.mark.slow
def test_a_script_that_closes_all_descriptors_goes_on(job: Job) -> None:
    job.train("if rank == 1: os.closerange(3, 4096)")
    job.wait_for("1 running", "ps")
    first, second = job.ended()
    assert [(each.status, each.out) for each in (first, second)] == [(0, "trained 0\n"), (0, "trained 1\n")]


def test_it_runs_as_python_runs_it(job: Job) -> None:
    """Words, path, module, variables: nothing is there that would not have been."""
    text = """
import json, os, sys
own = sorted(name for name in os.environ if name.startswith("MESHRT_"))
facts = [sys.argv, sys.path[0], __name__, __file__, __package__, sys.flags.safe_path, sys.stdin.read(), os.getcwd(),
         own, sys.modules["__main__"].__dict__ is globals(),
         *([type(each.buffer).__name__, each.name, each.mode, each.encoding, each.errors, each.line_buffering,
            each.write_through] for each in (sys.stdout, sys.stderr, sys.__stdout__))]
print(json.dumps(facts))
"""
    path = job.folder / "facts.py"
    path.write_text(text)
    job.start(str(path), "a", "--b=c")
    plain = subprocess.run([sys.executable, "-u", str(path), "a", "--b=c"], env=job.env, capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, check=True).stdout  # fmt: skip
    for each in job.ended():
        assert each.status == 0, each.err
        assert json.loads(each.out) == json.loads(plain)


@pytest.mark.parametrize("command", [[sys.executable, "-m", "meshrt"], [str(Path(sys.executable).with_name("meshrt"))]])
def test_a_crash_has_the_frames_of_the_script_alone_and_all_that_was_printed(command: list[str], job: Job) -> None:
    path = job.folder / "train.py"
    path.write_text(
        "import ctypes, os\nprint('half a line', end='')\nctypes.CDLL(None).printf(b', and of C')\n"
        "os.kill(os.getpid(), 11)\n"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    job.processes.append(subprocess.Popen([*command, "run", str(path)], env=job.env, text=True, **pipes))
    (ended,) = job.ended()
    assert (ended.status, ended.out) == (-signal.SIGSEGV, "half a line, and of C")
    assert re.findall(r'File "([^"]*)", line (\d+)', ended.err) == [(str(path), "4")] * 2, (
        ended.err
    )  # in the report, too


def test_closed_streams_stay_closed(job: Job) -> None:
    path, found = job.folder / "streams.py", job.folder / "found"
    path.write_text(
        "import os, socket, sys\nwith socket.socket() as sock: number = sock.fileno()\n"
        f"open({str(found)!r}, 'w').write(f'{{sys.stdin}} {{sys.stdout}} {{sys.stderr}} {{number > 2}}')\n"
    )
    command = shlex.join([sys.executable, "-m", "meshrt", "run", str(path)])
    subprocess.run(["/bin/sh", "-c", f"{command} <&- >&- 2>&-"], env=job.env, check=True, timeout=_SECONDS)
    assert found.read_text() == "None None None True"


def test_the_program_of_a_job_has_nothing_of_its_launcher(job: Job) -> None:
    read_end, write_end = os.pipe()
    path = job.folder / "train.py"
    path.write_text(TRAIN)
    with os.fdopen(read_end), os.fdopen(write_end):
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-m", "meshrt", "run", str(path), str(job.stop)]
        env = {**job.env, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.port)}  # fmt: skip
        job.processes.append(subprocess.Popen(command, env=env, text=True, pass_fds=[write_end], **pipes))
        job.wait_for("1 rank of run", "where")
        root, pipe = job.root(), os.fstat(write_end).st_ino
    assert (
        root.name() == "meshrt-job"
        and root.cmdline()[0] == "meshrt: program of a job"
        and os.getsid(root.pid) == root.pid
    )
    opened = [os.readlink(path) for path in Path(f"/proc/{root.pid}/fd").iterdir()]
    assert f"pipe:[{pipe}]" not in opened and opened.count("/dev/null") >= 2
    masks = dict(re.findall(r"^(Sig\w+):\t(\w+)$", Path(f"/proc/{root.pid}/status").read_text(), re.M))
    assert all(int(masks["SigIgn"], 16) >> number - 1 & 1 for number in JOB_IGNORES) and int(masks["SigBlk"], 16) == 0
    assert [(each.status, each.out) for each in job.ended()] == [(0, "trained 0\n")]


@pytest.mark.parametrize("flag", ["-Xdev", "-Werror"])
def test_warnings_are_those_of_the_script_alone(flag: str, job: Job) -> None:
    path = job.folder / "train.py"
    path.write_text("import warnings\nprint('begun')\nwarnings.simplefilter('default')\nwarnings.warn('old')\n")
    for command in ([flag, str(path)], [flag, "-m", "meshrt", "run", str(path)]):
        job.processes.append(
            subprocess.Popen([sys.executable, *command], env=job.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        )  # fmt: skip
    plain, other = job.ended()
    assert other == plain and plain.out == "begun\n" and "UserWarning: old" in plain.err


def test_deepspeed_puts_a_word_before_the_command(job: Job) -> None:
    path = job.folder / "words.py"
    path.write_text("import sys; print(sys.argv[1:])")
    job.start(str(path), "--lr", "1", before=["--local_rank=0"])
    assert [(each.status, each.out) for each in job.ended()] == [(0, "['--local_rank=0', '--lr', '1']\n")] * 2


def test_what_is_refused(job: Job) -> None:
    job.train(options=["--mesh", "dp=3"])
    for each in job.ended():
        assert each.status == 2 and "--mesh dp=3 has 3 ranks, but RANK and LOCAL_WORLD_SIZE has started 2" in each.err
    assert not os.listdir(job.runtime)
