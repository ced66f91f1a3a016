"""Commands of the debugger as commands of the shell: exit codes, records, the prompt that ``attach`` opens, Tab."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from meshrt.transport import tools
from tests.debug.harness import person
from tests.debug.pty_harness import screen
from tests.support.programs import another_program, environment, run_python

WAIT = 20


def meshrt(*words: str, code: int = 0) -> str:
    """Run the command; return what it writes, where it belongs."""
    done = run_python("-m", "meshrt", *words)
    assert done.returncode == code, done
    assert not done.stdout or not done.stderr, done
    return done.stdout or done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_a_line_means_the_same_in_a_shell() -> None:
    with person() as me:
        for line in ("list", "status", "p debugee rank", "names", "breaks", "cast debugee ranks(hosts=0) p rank"):
            at_prompt = me(line)
            # Ages, and the other terminal, differ.
            if line != "status":
                assert meshrt(*line.split()) == at_prompt, line
    assert meshrt("p", "--ranks", "hosts=1", "debugee", "rank * 2") == "[2] 4\n[3] 6\n"
    assert meshrt("where", "debugee", "ranks(0, 1)").startswith("2 ranks of ")
    assert "breakpoint 1  test_commands_in_shell.py:1" in meshrt("break", "test_commands_in_shell.py:1,", "1 > 2")
    assert meshrt("clear", "1").startswith("deleted 1 ")
    assert meshrt("interrupt", "debugee") == "4 ranks of debugee (0-3): stopped already\n"
    assert meshrt("postmortem", "on", "debugee").startswith("debugee: on\n")
    assert "debugee: default" in meshrt("postmortem", "default", "debugee", "-p", str(os.getpid()))
    assert meshrt("wait", "debugee", "1") == "stopped: 4 ranks: 0-3\n"


@pytest.mark.nightly
@pytest.mark.usefixtures("stopped")
def test_what_fails_is_told_by_the_exit_code() -> None:
    program = tools.own_program()
    assert program is not None
    for words, code, said in (
        (("p", "debugee", "nothing"), 1, "NameError"),
        (("wait", "debuge", "0.1"), 2, "no actor 'debuge'"),
        (("p", "debuge", "x"), 2, "meshrt p: no actor 'debuge'; did you mean 'debugee'?"),
        (("p", "debugee"), 2, "the expression is missing"),
        (("interrupt", "debugee", "--ranks", "9"), 2, "rank 9"),
        (("attach", "debugee", "five"), 2, "'five' is not a valid rank"),
        (("list", "stoped"), 2, "did you mean 'stopped'?"),
        (("list", "-p", "1"), 2, "PID 1 is not a meshrt program"),
        (("where", program.run_id), 2, f"is a program, to choose it: meshrt where -p {program.run_id}"),
        (
            ("timeline", program.run_id, "out.json"),
            2,
            f"the file comes first: meshrt timeline out.json {program.run_id}",
        ),
        (("logs", "debugee", "0"), 2, "ranks of debugee are written --ranks 0"),
        (("memory", "--diff", "a.json", "b.json"), 2, "expected --open b.json --diff a.json"),
        (("quit",), 2, "no command 'quit'"),
    ):
        assert said in meshrt(*words, code=code), words
    assert meshrt("status", "-p", program.run_id[:5])


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_records() -> None:
    record = json.loads(meshrt("p", "--json", "debugee", "ranks(1)", "rank"))
    assert (record["schema"], record["command"], record["line"]) == (
        "meshrt debug", "p", "p --json debugee ranks(1) rank",
    )  # fmt: skip
    assert record["ok"] and record["answers"][0]["text"] == "1"
    wrong = json.loads(meshrt("list", "--json", "nobody", code=2))
    assert not wrong["ok"] and wrong["error"]["type"] == "UsageError"
    nowhere = json.loads(meshrt("list", "--json", "-p", "1", code=2))
    assert nowhere["programs"][0]["pid"] == os.getpid()


@pytest.mark.usefixtures("stopped")
def test_attach_opens_the_prompt() -> None:
    with screen("-m", "meshrt", "attach", "debugee", "2") as me:
        me.sees("attached to debugee 2", "(debugee 2 hosts=1,gpus=0)")
        me.types("p rank")
        me.sees("2\n")
        me.types("status")  # for the mesh: there is no such variable
        me.sees("4 ranks alive", "(debugee 2")
        me.types("detach")
        me.sees("meshrt_dbg>")
        me.types("quit")
        me.ends()
        assert me.code == 0


@pytest.mark.usefixtures("stopped")
def test_attach_reads_lines_where_there_is_no_terminal() -> None:
    typed = ["-m", "meshrt", "attach", "debugee", "2"]
    done = subprocess.run(
        [sys.executable, *typed],
        input="p rank * 100\n",
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0 and "attached to debugee 2" in done.stdout and "\n200\n" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_tab_completes() -> None:
    def completed(*words: str) -> list[str]:
        return meshrt("completion", "bash", *words).split()

    program = tools.own_program()
    assert program is not None
    assert completed("whe") == ["where"]
    assert completed("where", "deb") == ["debugee"]
    assert completed("where", "--ranks", "gp") == ["gpus="]
    assert completed("list", "sto") == ["stopped"]
    assert sorted(completed("attach", "debugee", "")) == ["0", "1", "2", "3"]
    assert completed("debug", "") == [program.run_id] == completed("list", "-p", "")
    assert completed("memory", "--un") == ["--units"] and "auto" in completed("memory", "--units", "")
    assert completed("no-such", "") == []
    assert completed("memory", "--save", "") == completed("timeline", "out") == [":files:"]
    assert completed("where", "no-such") == []
    with another_program("from meshrt import *\nproc_mesh(n=1).spawn('other', Actor).get()"):
        assert completed("where", "") == ["other", "debugee"] or completed("where", "") == ["debugee", "other"]
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    script = (
        f'meshrt() {{ "{sys.executable}" -m meshrt "$@"; }}\nsource <(meshrt completion bash)\n'
        'COMP_WORDS=(meshrt where de); COMP_CWORD=2; _meshrt; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", script], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "debugee\n"
