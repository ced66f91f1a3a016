"""``meshrt ps`` and ``meshrt logs``: what the debugger knows, without its prompt, of all programs of the user."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshrt import SupervisionError, proc_mesh
from meshrt.engine.local import LocalEngine
from meshrt.errors import one_line
from meshrt.inspect.programs import NoProgram, choose
from meshrt.transport import tools
from tests.debug.actors import Debugee
from tests.debug.harness import person
from tests.debug.pty_harness import screen
from tests.support.pausing import paused
from tests.support.programs import ROOT, another_program, environment, run_python
from tests.support.waiting import wait_until

WAIT = 20
#: An option of ``ps``: on a busy machine a program may take longer to answer than a person wants to wait.
PATIENT = ("--timeout", "1000")
#: On standard error: the programs of these tests say on the other one how far they are.
PRINTING = """
import sys
from meshrt import Actor, current_rank, endpoint, proc_mesh
class Talker(Actor):
    @endpoint
    def say(self, *texts):
        for text in texts:
            print(text.format(rank=current_rank().rank), file=sys.stderr)
talker = proc_mesh(hosts=2, gpus=2).spawn("talker", Talker).get()
talker.say.call("hello", "rank {rank}").get()
talker.slice(hosts=1).say.call("last").get()
"""


def meshrt(*arguments: str, code: int = 0) -> str:
    """Run the command; return what it writes, where it belongs."""
    done = run_python("-m", "meshrt", *arguments)
    assert done.returncode == code, done
    return done.stderr if code == 2 else done.stdout


def ps(*arguments: str, code: int = 0) -> dict[str, Any]:
    """The record of ``ps``."""
    record = json.loads(meshrt("ps", *PATIENT, "--json", *arguments, code=code))
    assert (record["schema"], record["command"]) == ("meshrt ps", "ps")
    return dict(record)


def own(record: dict[str, Any]) -> dict[str, Any]:
    """What it says of this program."""
    return next(program for program in record["programs"] if program["pid"] == os.getpid())


@pytest.mark.slow
def test_ranks_are_counted_by_state_and_one_program_that_is_silent_keeps_nobody_waiting() -> None:
    mesh = proc_mesh(hosts=2, gpus=2).spawn("debugee", Debugee).get(WAIT)
    idle = proc_mesh(n=1)
    idle.initialized.get(WAIT)
    pids = mesh.pid.call().get(WAIT).values()
    result = mesh.slice(hosts=0).work.call()
    with person() as me, another_program() as other:
        me.wait("debugee", "ranks(hosts=0)")
        me.until("status", "debugee 2-3: idle")
        os.kill(pids[3], signal.SIGKILL)
        with pytest.raises(SupervisionError):
            mesh.slice(hosts=1, gpus=1).pid.call_one().get(WAIT)
        # It is known to be stopped: nobody waits for it as long as was said.
        with paused(other.pid):
            record = ps("-v", code=1)
            shown = meshrt("ps", *PATIENT, code=1)
            with screen("-m", "meshrt", "ps", *PATIENT, COLUMNS="60") as terminal:
                narrow = [line.rstrip() for line in terminal.ends().splitlines()]
        assert max(map(len, narrow)) <= 60 and terminal.code == 1
        assert "does not answer: stopped by a signal;" in " ".join(line.strip() for line in narrow)
        page = (ROOT / "docs" / "commands.md").read_text()
        assert all(
            f'"{key}"' in page for key in {*record, *own(record), *own(record)["meshes"][0]} - {"rows", "left_out"}
        )
        silent = next(program for program in record["programs"] if program["pid"] == other.pid)
        assert silent["problem"].startswith("does not answer: stopped by a signal; kill -CONT")
        first, second = own(record)["meshes"]
        assert (first["states"], first["actors"]) == ({"stopped": 2, "idle": 1, "dead": 1}, ["debugee"])
        assert (second["states"], second["alive"]) == ({"idle": 1}, 1)  # no actor: no row
        rows = {row["rank"]: row for row in own(record)["rows"]}
        assert [rows[rank]["pid"] for rank in range(3)] == pids[:3]
        assert rows[1]["coords"] == {"hosts": 0, "gpus": 1}, "those of the mesh, not of the slice that was called"
        assert all(1 << 20 < rows[rank]["rss"] < 1 << 32 for rank in range(3))
        assert rows[3]["rss"] == 0
        line = next(line for line in shown.splitlines() if f" {os.getpid()} " in line)
        assert "5: 2 idle, 2 stopped, 1 dead" in line
        assert "{hosts=2,gpus=2} debugee" in line
        # Of some ranks: a program that has none of them is not what was asked for.
        assert own(ps("--ranks", "stopped & gpus=1"))["meshes"][0]["states"] == {"stopped": 1}
        assert not re.search(rf"\b{other.pid}\b", meshrt("ps", *PATIENT, "--ranks", "stopped"))
        assert "| debugee      |      0 |" in meshrt("ps", *PATIENT, "-v", "--ranks", "ranks(0)")
        assert "no dimension" in meshrt("ps", *PATIENT, "--ranks", "nodes=1", code=2)
        assert "did you mean 'stopped'" in meshrt("ps", *PATIENT, "--ranks", "stoped", code=2)
        # One that is killed leaves its directory, and is not shown.
        other.kill()
        other.wait(WAIT)
        assert [program["pid"] for program in ps()["programs"]] == [os.getpid()]
        me("continue")
        result.get(WAIT)


@pytest.mark.slow
def test_ranks_of_a_host_that_does_not_answer_are_not_said_to_run() -> None:
    why = "the agent of its host does not answer"
    debugee = proc_mesh(n=4, engine=LocalEngine(agents=2)).spawn("debugee", Debugee).get(WAIT)
    proc_mesh(n=1, name="idle", engine=LocalEngine(agents=1)).initialized.get(WAIT)
    agent = psutil.Process(debugee.pid.call().get(WAIT).values()[2]).ppid()
    every = [{"idle": 4}, {"idle": 1}]
    wait_until(lambda: [mesh["states"] for mesh in own(ps())["meshes"]] == every, WAIT)
    with paused(agent):
        of_both, idle = own(ps())["meshes"]
        assert (of_both["states"], of_both["silent"]) == ({"idle": 2, "not-answering": 2}, {why: [2, 3]})
        assert (idle["states"], idle["silent"]) == ({"idle": 1}, {})
        assert f"5: 3 idle, 2 not-answering ({why}: may be running)" in meshrt("ps", *PATIENT)
        shown = meshrt("ps", *PATIENT, "-v", "--ranks", "not-answering")
        assert f"not answering: 2-3 ({why})" in shown and "running" not in shown
    # On a busy machine the agent, which has been stopped, may take more than one question.
    wait_until(lambda: [mesh["states"] for mesh in own(ps())["meshes"]] == every, WAIT)


WAITING = """
import time
from meshrt import Actor, endpoint, proc_mesh

class Trainer(Actor):
    @endpoint
    def step(self):
        time.sleep(100)  # @here

def train():
    trainers.slice(n=slice(0, 2)).step.call().get()  # @waits

trainers = proc_mesh(n=3).spawn("trainer", Trainer)
train()
"""


@pytest.mark.slow
def test_ps_and_status_say_what_the_script_waits_for(tmp_path: Path) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    lines = WAITING.splitlines()
    waits, here = (next(n for n, line in enumerate(lines, 1) if mark in line) for mark in ("@waits", "@here"))
    said = re.compile(
        rf"the script \({re.escape(str(script))}:{waits}\) waits for trainer\.step\(\) of ranks 0-1, "
        rf"blocked at \S*waiting\.py:{here}, in step, for \d+ s$",
        re.MULTILINE,
    )
    with subprocess.Popen([sys.executable, str(script)], env=environment(), stderr=subprocess.PIPE) as program:
        try:
            wait_until(lambda: said.search(meshrt("ps", *PATIENT)), WAIT, "ps says it")
            for words in (["ps", *PATIENT, "-v"], ["status"], ["debug", "-c", "status"]):
                assert said.search(meshrt(*words)), words
        finally:
            program.kill()
            program.communicate()


@pytest.mark.slow
def test_programs_that_have_failed_are_pointed_at() -> None:
    assert "no meshrt program of this user is running" in meshrt("ps", *PATIENT)
    code = "import os\nfrom tests.support.actors import Failing\nfrom meshrt import proc_mesh\n"
    code += "proc_mesh(n=1).spawn('failing', Failing).get().fail.call().get()"
    assert run_python("-c", code).returncode == 1
    failed = ps()["failed"][0]
    assert failed["outcome"] == "failed"
    assert "LookupError: rank 0 fails" in failed["cause"]
    assert "LookupError: rank 0 fails" in meshrt("postmortem", failed["program"])
    assert f"meshrt postmortem {failed['program']}" in meshrt("ps", *PATIENT)
    assert f"has ended; meshrt postmortem {failed['program']} shows what failed there" in meshrt(
        "memory", failed["program"], code=2
    )


@pytest.mark.slow
def test_a_failure_that_the_program_has_handled_is_none_of_the_program() -> None:
    code = "from tests.support.actors import Failing\nfrom meshrt import ActorError, proc_mesh\n"
    code += "try:\n    proc_mesh(n=1).spawn('failing', Failing).get().fail.call().get()\nexcept ActorError:\n    pass"
    with another_program(code) as other:
        found = next(each for each in tools.programs() if each.pid == other.pid)
        wait_until(lambda: (found.run_directory / "failure-1.json").exists(), WAIT)
        for name in (str(other.pid), found.run_id):
            done = run_python("-m", "meshrt", "postmortem", name)
            assert done.returncode == 0 and "LookupError: rank 0 fails" in done.stdout
            assert f"it still runs (pid {other.pid}), and this is its last failure so far" in done.stderr
            assert (
                f"still runs (pid {other.pid}), and may fail"
                in run_python("-m", "meshrt", "postmortem", name, "--list").stderr
            )
            assert json.loads(meshrt("postmortem", name, "--list", "--json"))["running"] == other.pid
            assert json.loads(meshrt("postmortem", name, "--ranks", "0", "--json"))["running"] == other.pid
        relative = run_python("-m", "meshrt", "postmortem", "failure-1.json", cwd=found.run_directory)
        assert f"it still runs (pid {other.pid})" in relative.stderr
        other.communicate("\n", timeout=WAIT)
    entry = ps()["failed"][0]
    assert (entry["program"], entry["outcome"]) == (found.run_id, "handled")
    ended = run_python("-m", "meshrt", "postmortem", found.run_id).stderr
    command = re.escape(one_line(shlex.join([sys.executable, *found.argv[1:]]), 200))
    when = r"failed on \d+-\d+-\d+ [\d:]+, \d+ s ago; it has ended"
    assert found.argv[1] == "-c" and found.argv[2].startswith(code)
    assert re.fullmatch(rf"meshrt postmortem: {found.run_id}, {command}, {when}", ended.splitlines()[0])
    said = next(line for line in meshrt("ps", *PATIENT).splitlines() if found.run_id in line)
    assert said.startswith("ended ") and "ago, after a failure that did not end it: failing rank 0" in said
    assert "this failure did not end the program: the program continued, and ended later" in meshrt(
        "postmortem", found.run_id
    )
    assert json.loads(meshrt("postmortem", found.run_id, "--list", "--json"))["running"] is None
    assert f"meshrt postmortem {found.run_id} shows what failed there" in meshrt("memory", found.run_id, code=2)
    # One that is killed has not said how it went on.
    with another_program(code) as other:
        found = next(each for each in tools.programs() if each.pid == other.pid)
        wait_until(lambda: (found.run_directory / "failure-1.json").exists(), WAIT)
        other.kill()
    assert ps()["failed"][0]["outcome"] == "" and re.search(
        r"was ended \d+ s ago, after a failure: failing", meshrt("ps", *PATIENT)
    )


@pytest.mark.slow
def test_one_program_of_several() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    with another_program() as other:
        (program,) = ps(str(other.pid))["programs"]
        assert program["pid"] == other.pid and "failed 0 s" not in meshrt("ps", program["program"])
        assert "'other' is not a meshrt program; name one by its id or its pid: pid" in meshrt("ps", "other", code=2)
        assert "no command 'postmortm'; did you mean 'postmortem'?" in meshrt("postmortm", code=2)
        assert "choose one with meshrt p -p RUN" in meshrt("p", "trainer", "self.x", code=2)
        begin = program["program"][:4]
        assert "no actor 'trainer'" in meshrt("p", "-p", begin, "trainer", "self.x", code=2)
        done = run_python("-m", "meshrt", "postmortem", program["program"])
        assert done.returncode == 1 and f"(pid {other.pid}) still runs, and no failure is recorded" in done.stderr


def test_no_lines_of_one_that_has_ended(tmp_path: Path) -> None:
    run = tmp_path / "20260101-000000-0badc0de"
    run.mkdir()
    (run / ".lock").touch()
    said = meshrt("logs", str(run), code=2)
    assert said.startswith("meshrt logs: the program has ended, and there is no output of its ranks: the ranks printed")


@pytest.mark.slow
def test_last_lines_of_one_that_runs_and_of_one_that_has_ended(tmp_path: Path) -> None:
    assert "no meshrt program of this user is running" in meshrt("logs", code=2)
    with another_program(PRINTING) as other:
        everything = meshrt("logs")
        each = [f"[{rank}]\nhello\nrank {rank}\n{'last' * (rank > 1)}".rstrip() + "\n" for rank in range(4)]
        assert everything == "".join(each)
        assert meshrt("logs", str(other.pid), "talker", "-n", "1", "--ranks", "hosts=1") == "[2-3] last\n"
        assert "+rank 1" in meshrt("logs", "--ranks", "hosts=0", "--diff")
        record = json.loads(meshrt("logs", "talker", "-n1", "--json"))
        assert [(group["ranks"], group["text"]) for group in record["answers"]] == [
            ([2, 3], "last"), ([0], "rank 0"), ([1], "rank 1"),
        ]  # fmt: skip
        assert "did you mean 'talker'" in run_python("-m", "meshrt", "logs", "talkr").stderr
        assert "the number of lines is from 1 to 10000" in run_python("-m", "meshrt", "logs", "-n", "-3").stderr
        run = Path(record["run_directory"]).name.rpartition("-")[2]
        other.communicate("\n", timeout=WAIT)
    assert meshrt("logs", run) == everything == meshrt("logs", run[:6])
    assert meshrt("logs", run, "mesh1", "-n", "1", "--ranks", "2:") == "[2-3] last\n"
    assert "there are meshes: mesh1" in run_python("-m", "meshrt", "logs", run, "mesh2").stderr
    assert f"the last one was {run}: meshrt logs {run} shows what it has printed" in meshrt("logs", code=2)
    for command in (("memory",), ("timeline", str(tmp_path / "out.json")), ("ps",)):
        said = meshrt(*command, run, code=2)
        assert f"program {run} has ended; meshrt logs {run} shows what it has printed" in said
    assert "is not a meshrt program" in meshrt("logs", "4711", "talker", code=2)


def test_what_follows_is_shown_until_the_program_ends() -> None:
    code = PRINTING + "print('up', flush=True)\ninput()\ntalker.say.call('both', 'more of {rank}').get()\n"
    code += "print('up', flush=True)\ninput()\nproc_mesh(n=1).spawn('late', Talker).get().say.call('new').get()\n"
    code += "print('up', flush=True)\ninput()\ntalker.say.call('bye').get()\n"
    with (
        another_program(code) as other,
        subprocess.Popen(
            [sys.executable, "-u", "-m", "meshrt", "logs", "-f", "-n", "1", "--ranks", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        ) as following,
    ):  # fmt: skip
        assert other.stdin is not None
        assert other.stdout is not None
        assert following.stdout is not None
        assert following.stdout.readline() == "[0] rank 0\n"
        lines = []
        for count in (2, 1, 1):
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "up\n"
            lines += [following.stdout.readline() for _ in range(count)]
        other.communicate("\n", timeout=WAIT)
        out, err = following.communicate(timeout=WAIT)
    assert (following.returncode, out) == (0, "")
    # From the second mesh on, a line needs the name of its own.
    assert lines == ["[0] both\n", "[0] more of 0\n", "[mesh2 0] new\n", "[mesh1 0] bye\n"]
    assert f"meshrt logs: the program (pid {other.pid}) has ended" in err


@pytest.mark.slow
@pytest.mark.parametrize("words", ["logs -f", "logs -f --json", "memory --watch 0.5"])
def test_what_follows_ends_with_its_reader(words: str) -> None:
    """Nothing is printed any more: a write would not tell that the reader is gone."""
    proc_mesh(n=1).spawn("debugee", Debugee).get(WAIT)
    with subprocess.Popen(
        [sys.executable, "-m", "meshrt", *words.split()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as following:  # fmt: skip
        assert following.stdout is not None and following.stderr is not None
        following.stdout.readline()
        following.stdout.close()
        try:
            assert following.wait(WAIT) == 0
        finally:
            following.kill()
        assert following.stderr.read() == ""


@pytest.mark.slow
def test_a_rank_to_compare_with_that_does_not_exist() -> None:
    proc_mesh(n=2).spawn("debugee", Debugee).get(WAIT)
    said = "rank 9 is not among the ranks that were asked; expected one of 0-1"
    assert said in meshrt("logs", "--diff", "9", code=2)
    assert said in meshrt("p", "--diff", "9", "debugee", "1", code=2)
    record = json.loads(run_python("-m", "meshrt", "logs", "--json", "--diff", "9").stdout)
    assert (record["schema"], record["ok"], record["error"]["type"]) == ("meshrt logs", False, "UsageError")


@pytest.mark.slow
def test_no_program_has_such_ranks() -> None:
    proc_mesh(n=2).spawn("debugee", Debugee).get(WAIT)
    with another_program("from meshrt import *\nproc_mesh(n=1).spawn('a', Actor).get()"):
        said = meshrt("ps", *PATIENT, "--ranks", "9", code=2)
        assert said.startswith("meshrt ps: no program has such ranks\n")
        assert said.count("rank 9 does not exist") == 2
        one = meshrt("ps", *PATIENT, str(os.getpid()), "--ranks", "9", code=2)
    assert one.startswith("meshrt ps: rank 9 does not exist: there are 2 ranks\n")


def test_a_program_is_named_by_pid_id_or_directory() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    wait_until(lambda: tools.own_program() is not None, WAIT)
    program = tools.own_program()
    assert program is not None
    for name in ("", str(program.pid), program.run_id, str(program.run_directory)):
        assert choose(name, how="--pid") == program
    with pytest.raises(NoProgram, match=f"'other' is not a meshrt program; .*: pid {program.pid}: .*{program.run_id}"):
        choose("other", how="--pid")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["meshrt ps", "meshrt logs", "meshrt memory", "meshrt top --once", "meshrt.debug -c where"]
)
def test_a_command_that_was_started_without_its_output_does_its_work(command: str) -> None:
    """Python has None in place of a closed stream; what is printed there as an error goes to the other one."""
    mesh = proc_mesh(n=1)
    mesh.spawn("debugee", Debugee).get(WAIT)

    def run(more: str, closed: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", f"exec {sys.executable} -m {command} {more} {closed}"],
            capture_output=True,
            text=True,
            timeout=40,
            env=environment(),
            check=False,
        )

    done = run("" if command == "meshrt ps" else str(os.getpid()), ">&-")
    assert (done.returncode, done.stderr) == (0, ""), done
    done = run("--no-such-option", "2>&-")
    assert (done.returncode, done.stdout) == (2, ""), done
