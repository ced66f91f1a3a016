"""What a program says when ranks of it fail, as the person sees it who started it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshrt import Actor, ActorError, ProcessDied, UsageError, endpoint, proc_mesh
from meshrt.cli import main
from meshrt.errors import RankPlace
from meshrt.failure.files import files_of
from meshrt.failure.record import FailureRecord
from meshrt.mesh.program import start_root
from meshrt.transport.directories import remove_tree
from tests.faults.watch import LONG, Program
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

PRELUDE = """\
import asyncio, ctypes, os, signal, sys, threading, time
from meshrt import Actor, ActorError, current_rank, endpoint, proc_mesh

class Trainer(Actor):
    @endpoint
    def step(self, number, gate=""):
        if current_rank().rank == 2:
            while gate and not os.path.exists(gate): time.sleep(0.002)
            return self.forward({"ids": [1, 2]}, number)
        time.sleep(60)

    def forward(self, batch, number):
        try:
            return batch["labels"]
        except KeyError as error:
            raise ValueError(f"bad batch {number}") from error

    @endpoint
    def passes_on(self, other, seconds):
        try: other.everywhere.call_one('raise OSError("fatal")').get()
        finally: time.sleep(seconds)  # longer than failures are taken together

    @endpoint
    def run(self, code):
        if current_rank().rank == 2:
            print("loading shard 2")
            exec("import ctypes, os, signal, sys\\n" + code)
            return
        time.sleep(60)

    @endpoint
    def everywhere(self, code):
        exec("import threading, time\\n" + code)

    @endpoint
    async def start_task(self, name=None):
        async def work():
            raise OSError("no disk")
        self.task = asyncio.create_task(work(), name=name)

"""


def program(tmp_path: Path, main: str, *, ranks: int = 4) -> subprocess.CompletedProcess[str]:
    """Run a script with a mesh ``mesh`` and a ``trainer`` on it."""
    body = "".join(f"        {line}\n" for line in main.splitlines())
    script = tmp_path / "train.py"
    script.write_text(
        f"{PRELUDE}def main():\n    with proc_mesh(n={ranks}, name='train') as mesh:\n"
        f"        trainer = mesh.spawn('trainer', Trainer)\n{body}\nmain()\n"
    )
    return run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))


def sections(text: str) -> list[list[str]]:
    """Return the parts of a report, from its first line on."""
    lines = text.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("=" * 20))
    parts: list[list[str]] = [[]]
    for line in lines[begin + 1 :]:
        if re.fullmatch(r"-+|=+", line):
            parts.append([])
        else:
            parts[-1].append(line)
    return [part for part in parts if part]


def test_one_rank_raises(tmp_path: Path) -> None:
    # It fails when the others are where they wait.
    gate = tmp_path / "gate"
    done = program(
        tmp_path,
        f"call = trainer.step.call(17, {str(gate)!r})\n"
        "from meshrt.mesh.program import start_root\nservices = start_root().services\n"
        "def waits(rank):\n    table = services.tables.get('inspect.activity')\n"
        "    state = table and table.state(mesh.mesh_id, rank, 'trainer')\n"
        "    return state and state.word == 'blocked'\n"
        f"while not all(map(waits, (0, 1, 3))): time.sleep(0.002)\nopen({str(gate)!r}, 'w').close()\ncall.get()",
    )
    assert done.returncode == 1
    traceback = done.stderr[: done.stderr.index("====")]
    assert traceback.count("  File ") == 2 and "meshrt/mesh" not in traceback
    assert "meshrt.errors.ActorError: trainer.step() raised on rank 2 (n=2)" in traceback
    head, healthy, root = sections(done.stderr)
    assert "FAILED 1 of 4 ranks of train (n=4)" in head[0]
    # A busy machine takes a moment to ask them.
    assert re.fullmatch(r"DID NOT FAIL  3 ranks; stacks (at that time|.* after the root cause):", healthy[0])
    assert re.search(r"3/3  0-1,3  step  .*train\.py:10 +blocked .* in time\.sleep", "\n".join(healthy))
    text = "\n".join(root)
    assert text.startswith("ROOT CAUSE  trainer rank 2 (n=2) on ") and "[certain: " in root[0]
    assert "what     ValueError: bad batch 17" in text and "trainer.step(), called at" in text
    assert "caused by KeyError: 'labels'" in text and "batch = {'ids': [1, 2]}" in text
    assert 'raise ValueError(f"bad batch {number}") from error' in text
    assert done.stderr.rstrip().splitlines()[-2].startswith("  more     meshrt postmortem ")


@pytest.mark.slow
def test_64_ranks_fail_alike(tmp_path: Path) -> None:
    code = "raise RuntimeError(f'no device {current_rank().rank}')"
    done = program(tmp_path, f"trainer.initialized.get()\ntrainer.everywhere.call({code!r}).get()", ranks=64)
    *_, root = sections(done.stderr)
    assert root[0].startswith("ROOT CAUSE  all 64 ranks failed in the same way")
    assert len(done.stderr.splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "what", "more"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL", "    | loading shard 2"),
        ("ctypes.string_at(0)", "was killed by SIGSEGV", "in run"),
        ("os._exit(7)", "exited with code 7", "    | loading shard 2"),
        ("sys.exit('no configuration')", "SystemExit: no configuration", "in run"),
    ],
)
def test_a_process_ends(code: str, what: str, more: str, tmp_path: Path) -> None:
    done = program(tmp_path, f"trainer.run.call({code!r}).get()")
    assert done.returncode == 1
    *_, root = sections(done.stderr)
    text = "\n".join(root)
    assert root[0].startswith("ROOT CAUSE  trainer rank 2 (n=2)") and f"what     {what}" in text and more in text
    assert re.search(r"where    (during )?trainer\.run\(\), called at .*train\.py:\d+ in main", text)


def test_a_rank_that_calls_another_is_its_victim(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "class Caller(Actor):\n"
        "    def __init__(self, trainer): self.trainer = trainer\n"
        "    @endpoint\n"
        "    def go(self): self.trainer.step.call(5).get()\n"
        "with proc_mesh(n=2, name='eval') as other:\n"
        "    other.spawn('caller', Caller, trainer).go.call().get()",
    )
    head, followed, *_, root = sections(done.stderr)
    # The first victim ends the script; the other may not have heard of it by then.
    assert "1 of 4 ranks of train" in head[0] and re.search("[12] of 2 ranks of eval", head[0])
    assert re.fullmatch("CONSEQUENCES OF THE ROOT CAUSE  (1 rank|2 ranks)", followed[0])
    assert "reason: its ActorError is about rank 2 of train" in followed[3]
    assert root[0].startswith("ROOT CAUSE  trainer rank 2") and "[certain" in root[0]
    assert "ValueError: bad batch 5" in "\n".join(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "what", "where"),
    [
        ("trainer.everywhere.broadcast('raise OSError(1)')", "OSError: 1", "trainer.everywhere()"),
        (
            "code = 'loader = threading.Thread(target=lambda: 1 / 0, name=\"loader\"); loader.start(); loader.join()'\n"
            "trainer.slice(n=1).everywhere.call_one(code).get()",
            "ZeroDivisionError: division by zero",
            "thread 'loader'",
        ),
        (
            "trainer.slice(n=1).start_task.call_one().get()\nimport gc\n"
            "trainer.slice(n=1).everywhere.call_one('self.task = None; import gc; gc.collect()').get()",
            "OSError: no disk",
            "a task",
        ),
        (
            "trainer.slice(n=1).start_task.call_one('prefetch').get()\nimport gc\n"
            "trainer.slice(n=1).everywhere.call_one('self.task = None; import gc; gc.collect()').get()",
            "OSError: no disk",
            "task 'prefetch'",
        ),
    ],
)
def test_what_nobody_waits_for_is_reported_and_the_exit_status_is_not_0(
    main: str, what: str, where: str, tmp_path: Path
) -> None:
    done = program(tmp_path, main)
    assert done.returncode == 1
    # Behind the report, more ranks may be named that raised the same.
    text = next(text for text in map("\n".join, sections(done.stderr)) if text.startswith("ROOT CAUSE"))
    assert f"what     {what}" in text and f"where    {where}" in text and "no caller waited for this error" in text


def test_what_the_script_handles_is_none_of_its_failures(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "try:\n    trainer.slice(n=2).everywhere.call_one('raise ValueError(1)').get()\n"
        "except ValueError as error:\n    print('caught', error.rank)",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught 2\n", "")


def test_what_the_script_has_handled_before_is_not_the_root_cause_however_wrong_a_clock_is(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        "from msgspec.structs import replace\nfrom meshrt.failure.root import Failures\nrecord = Failures.record\n"
        "def unsure(self, mesh_id, rank, recorded):\n"
        "    record(self, mesh_id, rank, replace(recorded, record=replace(recorded.record, clock_error=10**12)))\n"
        "Failures.record = unsure\none = trainer.slice(n=2).everywhere\n"
        "try:\n    one.call_one('raise ValueError(1)').get()\nexcept ValueError:\n    pass\n"
        "one.call_one('raise KeyError(2)').get()",
    )
    assert "what     KeyError: 2" in done.stderr and "ValueError" not in done.stderr, done.stderr


def test_an_error_of_the_script_itself_is_shown_as_ever(tmp_path: Path) -> None:
    done = program(tmp_path, "trainer.initialized.get()\n1 / 0")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr and "ROOT CAUSE" not in done.stderr


def test_a_message_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    code = "raise ValueError('\\x1b[31mred\\x00' + 'x' * 100_000)"
    done = program(tmp_path, f"trainer.run.call({code!r}).get()")
    assert "\x1b" not in done.stderr and "\x00" not in done.stderr and len(done.stderr) < 6000
    assert "ValueError: \\e[31mred\\x00xxx" in done.stderr


def test_the_file_is_there_although_the_script_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script has handled the error, and goes on; nothing of what is known is lost with it."""
    runs = tmp_path / "runs"
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"""
        victims = proc_mesh(n=4).spawn("victim", Victim)
        pid = victims.slice(n=1).pid.call_one().get()
        call = victims.wait_for.call("/nowhere", {str(inside / "rank")!r})
        while len(os.listdir({str(inside)!r})) < 4:
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        try:
            call.get()
        except ProcessDied:
            tell(died=True)
        time.sleep(600)
    """
    with Program(script, tmp_path, env={"MESHRT_RUNS": str(runs)}) as started:
        assert started.told("died")
        wait_until(lambda: list(runs.glob("*/failure-1.json")), LONG, "the file is written")
        (path,) = runs.glob("*/failure-1.json")
        os.kill(started.pid, signal.SIGKILL)
    assert main_of("postmortem", str(path)) == 0
    text = capsys.readouterr().out
    assert "ROOT CAUSE  victim rank 1 (n=1)" in text and "was killed by SIGKILL" in text
    assert "3/3  0,2-3" in text


def main_of(*arguments: str) -> int:
    """Run the ``meshrt`` command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["meshrt", *arguments])
        return main()


def test_postmortem(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("MESHRT_RUNS", str(runs))
    assert main_of("postmortem") == 1 and "no failed program found in" in capsys.readouterr().err
    done = program(tmp_path, "trainer.get()\ntrainer.step.call(17).get()")
    report = done.stderr[done.stderr.index("====") :]
    (run,) = [entry.name for entry in runs.iterdir() if (entry / "failure-1.json").exists()]
    capsys.readouterr()
    for name in ([], [run[-8:]], [str(runs / run)], [str(runs / run / "failure-1.json")]):
        assert main_of("postmortem", *name) == 0 and capsys.readouterr().out == report
    assert main_of("postmortem", "--ranks", "2") == 0
    text = capsys.readouterr().out
    assert text.startswith("trainer rank 2 (n=2)") and ": a root cause\n" in text and "number = 17" in text
    assert main_of("postmortem", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["ambiguous"] is False and document["records"][0]["exception"]["type"] == "ValueError"
    assert document["report"] == report
    assert main_of("postmortem", "--list") == 0
    assert "  1 failure; root cause: trainer rank 2 (n=2) on " in capsys.readouterr().out
    assert main_of("postmortem", "--list", "--json") == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["roots"][0]["ranks"] == [2] and failure["roots"][0]["what"] == "ValueError: bad batch 17"
    assert main_of("postmortem", "--ranks", "2", "--json") == 0
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert record["rank"] == 2 and record["cause"] is None
    assert main_of("postmortem", "--ranks", "3") == 0
    text = capsys.readouterr().out
    assert re.search(
        r"^rank 3 of train \(n=3\) did not fail; its stack at that time:\n  trainer\n.*1/1  3 \(n=3\)", text
    )
    # It has not begun, or has ended, or is at it.
    assert "0-1" not in text and ("train.py:" in text or "waits for messages" in text)
    assert main_of("postmortem", "--ranks", "3", "--json") == 0
    (healthy,) = json.loads(capsys.readouterr().out)["did_not_fail"]
    assert healthy["stacks"]["trees"][0]["ranks"] == [3] and not healthy["had_ended"]
    assert main_of("postmortem", "--ranks", "4") == 2
    assert "no mesh of the failed program had a rank 4; expected one of 0-3 of train" in capsys.readouterr().err
    assert main_of("postmortem", "--ranks", "4", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "SelectionError"
    assert main_of("postmortem", "nosuch") == 2 and "no program 'nosuch'" in capsys.readouterr().err
    (runs / run / "failure-1.json").write_text('{"schema": "meshrt failure", "ver')
    assert main_of("postmortem", run) == 1 and "is cut off or damaged" in capsys.readouterr().err


def test_the_disk_is_full(tmp_path: Path) -> None:
    """The file cannot be written: the report is printed all the same, and the reason is said once."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    ignore = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    done = program(tmp_path, f"trainer.initialized.get()\n{limit}\n{ignore}\ntrainer.step.call(17).get()")
    assert done.returncode == 1 and "ROOT CAUSE  trainer rank 2" in done.stderr
    assert done.stderr.count("the failure could not be written to a file: File too large") == 1


class Failing(Actor):
    @endpoint
    def fail(self, kind: str) -> None:
        if kind == "exit":
            os._exit(3)
        raise ValueError(kind)


def test_an_error_has_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.failure.root._PATIENCE", LONG)
    mesh = proc_mesh(n=3, name="train")
    failing = mesh.spawn("failing", Failing).get(LONG)
    with pytest.raises(ValueError, match="odd") as caught:
        failing.slice(n=1).fail.call_one("odd").get(LONG)
    assert isinstance(caught.value, ActorError)
    record = caught.value.record
    assert isinstance(record, FailureRecord) and (record.mesh, record.rank, record.coordinates) == (
        "train",
        1,
        {"n": 1},
    )
    assert record.exception is not None and record.exception.frames[-1].locals["kind"] == "'odd'"
    with pytest.raises(ProcessDied) as died:
        failing.slice(n=2).fail.call_one("exit").get(LONG)
    assert died.value.record.exit_code == 3 and died.value.record.kind == "exit"
    wait_until(lambda: files_of(start_root().run.run_directory), 5, "the file is written")
    assert ActorError(RankPlace("gone", "a", 0), "f", caught.value.remote).record is None


def test_several_ranks_are_one_error() -> None:
    failing = proc_mesh(n=6).spawn("failing", Failing).get(LONG)
    call = failing.fail.call("together")
    with pytest.raises(ActorError) as caught:
        call.get(LONG)
    ranks = {caught.value.rank, *(other.rank for other in caught.value.others)}
    assert len(ranks) == 1 + len(caught.value.others)
    assert all(other.remote.message == "together" for other in caught.value.others)
    if caught.value.others:
        assert "also raised ValueError: together" in str(caught.value)


@pytest.mark.slow
def test_ranks_that_do_not_answer_in_time(tmp_path: Path) -> None:
    done = program(tmp_path, "trainer.initialized.get()\ntrainer.run.call('1').get(timeout=0.5)")
    assert done.returncode == 1
    *_, root = sections(done.stderr)
    text = "\n".join(root)
    assert "meshrt.errors.CallTimeout: trainer.run(): no answer within 0.5 s from 3 of 4" in done.stderr
    assert root[0].startswith("ROOT CAUSE  trainer ranks 0-1,3 of train")
    assert "what     did not answer trainer.run() within 0.5 s" in text
    assert re.search(r"3/3  0-1,3  run  .*train\.py:\d+ +blocked .* in time\.sleep", text)
    again = run_python("-m", "meshrt", "postmortem", "--list", env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    assert "1 failure; root cause: trainer ranks 0-1,3 of train: did not answer trainer.run()" in again.stdout
    # They are all at one place: who keeps them waiting is not known. And nobody can wait any longer.
    assert root[0].endswith("[rank known, reason unknown]")
    assert "goes on" not in done.stderr


@pytest.mark.slow
def test_of_ranks_that_do_not_answer_the_one_that_is_elsewhere_is_named(tmp_path: Path) -> None:
    done = program(tmp_path, "trainer.initialized.get()\ntrainer.run.call('signal.pause()').get(timeout=1)")
    *_, root = sections(done.stderr)
    assert root[0].startswith(
        "ROOT CAUSE  trainer rank 2 (n=2) of train  [likely: at another place than the other 3 ranks"
    )
    assert root[-2].strip() == "likely culprits: 2 (n=2) (at another place than the other 3)"
    run = re.search(r"meshrt postmortem (\w+) --ranks 2$", root[-1])
    assert run is not None
    again = run_python(
        "-m", "meshrt", "postmortem", "--list", "--json", run[1], env=environment(MESHRT_RUNS=str(tmp_path / "runs"))
    )
    (cause,) = json.loads(again.stdout)["failures"][0]["roots"]
    assert (cause["ranks"], cause["likely"]) == ([0, 1, 2, 3], [2])


def test_the_command_that_it_names_works_although_there_is_no_directory_for_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    done = program(tmp_path, "trainer.run.call('1 / 0').get()")
    assert re.match(rf"meshrt: a run directory in {tmp_path}/runs cannot be made: .* is used instead; ", done.stderr)
    command = re.search(r"  more     meshrt (postmortem .*)", done.stderr)
    assert command is not None
    words = shlex.split(command[1])
    try:
        again = run_python("-m", "meshrt", *words, env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
        assert again.returncode == 0 and "ZeroDivisionError: division by zero" in again.stdout
    finally:
        remove_tree(Path(words[1]))


RING = """\
import os, signal, threading
from meshrt import Actor, current_rank, endpoint, proc_mesh

class Stage(Actor):
    def __init__(self):
        self.rank = current_rank().rank

    @endpoint
    def forward(self, mesh, stop):
        if stop and self.rank == 2:
            breakpoint()
        return mesh.slice(n={0: 1, 1: 2, 2: 1}[self.rank]).forward.call_one(mesh, stop).get()

mesh = proc_mesh(n=4, watchdog=3, name='ring')
stage = mesh.spawn('stage', Stage).get()
"""


def test_ranks_that_wait_for_each_other_are_the_root_cause(tmp_path: Path) -> None:
    script = tmp_path / "ring.py"
    script.write_text(RING + "stage.slice(n=0).forward.call_one(stage, False).get(timeout=10)\n")
    done = run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    kept = r"stage ranks 1 and 2 wait for each other, for \d+ s"
    assert re.search(rf"watchdog: .* from 1 of 1 \(rank 0 .*; {kept}; stacks of these ranks:\n", done.stderr)
    _, healthy, root = sections(done.stderr)
    assert re.fullmatch(rf"ROOT CAUSE  {kept}  \[certain: each of these ranks waits for the next one\]", root[0])
    assert re.search(r"what     stage rank 0 .* did not answer stage.forward\(\) within 10 s", root[1])
    assert healthy[0].startswith("DID NOT FAIL  1 rank;")


def test_a_rank_for_which_all_others_wait_is_the_likely_root_cause(tmp_path: Path) -> None:
    script = tmp_path / "served.py"
    script.write_text(
        "import time\n"
        "from meshrt import Actor, endpoint, proc_mesh\n"
        "class Server(Actor):\n"
        "    @endpoint\n"
        "    def fetch(self): time.sleep(60)\n"
        "class Client(Actor):\n"
        "    @endpoint\n"
        "    def work(self, server): return server.fetch.call_one().get()\n"
        "server = proc_mesh(n=1, name='store').spawn('server', Server)\n"
        "client = proc_mesh(n=3, name='workers').spawn('client', Client).get()\n"
        "client.work.call(server.get()).get(timeout=3)\n"
    )
    done = run_python(str(script), env=environment(MESHRT_RUNS=str(tmp_path / "runs")))
    owes = (
        r"server rank 0 has not answered server.fetch\(\) for \d+ s: blocked in time.sleep at \S+served.py:5, in fetch"
    )
    root = sections(done.stderr)[-1]
    assert re.fullmatch(
        rf"ROOT CAUSE  {owes}  \[likely: all ranks that have not answered the script wait for this one, which does not "
        r"wait itself\]",
        root[0],
    ), root
    assert root[1] == "  what     client ranks 0-2 of workers did not answer client.work() within 3 s"
    assert "DID NOT FAIL" not in done.stderr


@pytest.mark.slow
def test_a_rank_at_a_breakpoint_is_the_root_cause_when_one_presses_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "ring.py"
    script.write_text(
        RING.replace(", watchdog=3", "")
        + "from meshrt.mesh.program import start_root\nservices = start_root().services\n"
        "def interrupt():\n"
        "    key = (mesh.mesh_id, 0, 'stage')\n"
        "    while not (known := services.tables.get('inspect.activity')) or not known.standstill([key]): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "stage.slice(n=0).forward.call_one(stage, True).get()\n"
    )
    runs = environment(MESHRT_RUNS=str(tmp_path / "runs"))
    done = run_python(str(script), env=runs)
    kept = r"stage rank 2 is stopped in the debugger at \S+ring\.py:\d+, in forward"
    assert done.returncode == -signal.SIGINT
    assert re.search(rf"no answer from 1 of 1 \(rank 0 .*\); {kept}; rank 0 blocked at ", done.stderr)
    report = run_python("-m", "meshrt", "postmortem", env=runs).stdout
    assert re.search(rf"\nROOT CAUSE  {kept}  \[until a user continues it\]\n", report)


def test_the_watchdog_says_who_does_not_answer_and_where_they_are(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        PRELUDE + "mesh = proc_mesh(n=3, watchdog=1)\ntrainer = mesh.spawn('trainer', Trainer).get()\n"
        "call = trainer.run.call('')\nquick = trainer.slice(n=2).everywhere.call_one('')\n"
        "quick.get()\ninput()\nprint('on', call.done())\nmesh.stop(0)\n"
    )
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment()) as program:
        assert program.stderr is not None
        err = ""
        for line in program.stderr:
            err += line
            if err.count("meshrt: watchdog: trainer.run(): no answer within ") == 2:
                break
        out, more = program.communicate("\n", timeout=60)
    assert program.returncode == 0 and out.endswith("on False\n"), err + more
    assert "no answer within 3 s" in err and "everywhere" not in err + more
    assert "no answer within 1 s from 2 of 3 (ranks 0-1); the call is still running" in err
    assert re.search(r"2/2 .* run  .*train\.py:\d+ +blocked .* in time\.sleep", err + more)


@pytest.mark.parametrize("seconds", [0, -1, "soon", True, float("inf"), float("nan")])
def test_a_watchdog_that_is_none(seconds: object) -> None:
    with pytest.raises(UsageError, match="watchdog is a positive number of seconds, not"):
        proc_mesh(n=1, watchdog=seconds)  # type: ignore[arg-type]  # what a user may write


def launched(tmp_path: Path, main: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run a script as a launcher does that reads TorchElastic's error files."""
    file = tmp_path / "error.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
        return program(tmp_path, main), file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "message", "inside"),
    [
        ("trainer.step.call(17).get()", r"trainer rank 2 \(n=2\) on .*: ValueError: bad batch 17", "ROOT CAUSE"),
        ("trainer.run.call('ctypes.string_at(0)').get()", r"trainer rank 2 .* was killed by SIGSEGV", "string_at"),
        (
            "trainer.everywhere.broadcast('1 / 0')",
            r"trainer rank \d .*: ZeroDivisionError",
            "no caller waited for this error",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero", "1 / 0"),
    ],
)
def test_the_launcher_is_told_of_the_root_cause(main: str, message: str, inside: str, tmp_path: Path) -> None:
    done, file = launched(tmp_path, main)
    assert done.returncode == 1
    document = json.loads(file.read_text())
    told = document["message"]
    assert re.match(message, told["message"]) and inside in told["extraInfo"]["py_callstack"]
    assert re.fullmatch(r"\d{10}", told["extraInfo"]["timestamp"])
    if main != "1 / 0":
        facts = document["meshrt"]
        assert facts["records"][0]["mesh"] == "train"
        # Whoever sees its connections closed may note that before the failure is noted.
        assert facts["worker"]["low"] < facts["records"][0]["low"]


def test_an_error_from_another_program(tmp_path: Path) -> None:
    """It names its cause; the times in it are those of another machine."""
    done, file = launched(
        tmp_path,
        "from meshrt.errors import RankPlace, RemoteException\n"
        "place = RankPlace('other', 'reader', 7, (('n', 7),), 'node9', 4711)\n"
        "error = ActorError(place, 'read', RemoteException('ValueError', 'bad shard', ''))\n"
        "error.sent = 1 << 62\n"
        "raise RuntimeError('no batch') from error",
    )
    *_, root = sections(done.stderr)
    assert root[0].startswith("ROOT CAUSE  reader rank 7 (n=7) on node9, pid 4711")
    text = "\n".join(root)
    assert "what     ValueError: bad shard" in text and "  when" not in text
    document = json.loads(file.read_text())
    assert document["message"]["message"] == "reader rank 7 (n=7) on node9, pid 4711: ValueError: bad shard"
    assert document["meshrt"]["worker"]["evidence"] == "carried"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_launcher_is_told_though_the_program_has_its_own_excepthook(when: str, tmp_path: Path) -> None:
    hook = "sys.excepthook = lambda *_: print('mine')\n"
    script = tmp_path / "train.py"
    script.write_text(
        f"{PRELUDE}{hook if when == 'before' else ''}with proc_mesh(n=4, name='train') as mesh:\n"
        f"    trainer = mesh.spawn('trainer', Trainer)\n    {hook if when == 'after' else ''}\n"
        "    trainer.step.call(17).get()\n"
    )
    file = tmp_path / "error.json"
    env = environment(MESHRT_RUNS=str(tmp_path / "runs"), TORCHELASTIC_ERROR_FILE=str(file))
    done = run_python(str(script), env=env)
    assert (done.returncode, done.stdout) == (1, "mine\n")
    told = json.loads(file.read_text())["message"]
    assert told["message"].endswith("ValueError: bad batch 17")
    assert ("ROOT CAUSE" in told["extraInfo"]["py_callstack"]) == (when == "before")


@pytest.mark.slow
@pytest.mark.parametrize("caught", ["ValueError", "LookupError"])
def test_what_the_script_handles_is_not_told(caught: str, tmp_path: Path) -> None:
    """The mesh is gone by then, and its error was on its way; the launcher may still stop the script, as a victim."""
    script = tmp_path / "train.py"
    script.write_text(
        f"{PRELUDE}file = os.environ['TORCHELASTIC_ERROR_FILE']\ntry:\n    with proc_mesh(n=4) as mesh:\n"
        "        mesh.spawn('trainer', Trainer).step.call(17).get()\n"
        f"except {caught}:\n    was = os.path.exists(file)\n"
        "deadline = time.monotonic() + 20\n"
        "while os.path.exists(file) and time.monotonic() < deadline:\n    time.sleep(0.01)\n"
        "print(was, os.path.exists(file))\n"
    )
    file = tmp_path / "error.json"
    env = environment(MESHRT_RUNS=str(tmp_path / "runs"), TORCHELASTIC_ERROR_FILE=str(file))
    done = run_python(str(script), env=env)
    assert file.exists() == (caught != "ValueError") and done.returncode == (caught != "ValueError")
    assert done.stdout == ("True False\n" if caught == "ValueError" else "")


def test_children_of_ranks_do_not_write_the_scripts_file(tmp_path: Path) -> None:
    """A child of a rank says why it fails in the file of that rank, and the report shows it."""
    child = (
        "import json, os; json.dump({'message': {'message': 'OSError: no shard', 'extraInfo': "
        "{'py_callstack': 'in the child', 'timestamp': '1'}}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))"
    )
    code = f"import subprocess; subprocess.run([sys.executable, '-c', {child!r}]); os._exit(1)"
    done, file = launched(tmp_path, f"trainer.run.call({code!r}).get()")
    *_, root = sections(done.stderr)
    assert "  wrote    OSError: no shard\n    in the child" in "\n".join(root)
    assert "exited with code 1" in json.loads(file.read_text())["message"]["message"]
