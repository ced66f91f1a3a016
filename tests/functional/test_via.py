"""``--via COMMAND``, where COMMAND begins a command line on this machine: `env` is the ssh of these tests."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pexpect
import pytest

from meshrt import proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import person
from tests.support.programs import another_program, environment, run_python
from tests.support.waiting import wait_until

WAIT = 20


def meshrt(*words: str, via: str = "env", code: int = 0, **variables: str) -> str:
    """Run a command; returns what it prints where its kind belongs."""
    done = run_python("-m", "meshrt", *words, "--via", via, env=environment(**variables))
    assert done.returncode == code, done
    return done.stdout + done.stderr if code else done.stdout


def left_over() -> list[Path]:
    """Directories that such commands have made."""
    return [*Path(os.environ["MESHRT_RUNTIME_DIR"]).glob("via-*")]


@pytest.mark.slow
def test_every_kind_of_command() -> None:
    mesh = proc_mesh(hosts=2, gpus=2).spawn("debugee", Debugee).get(WAIT)
    pending = mesh.slice(hosts=0).work.call()
    with person() as me:
        me.wait("debugee", "ranks(hosts=0)")
        me.until("status", "debugee 2-3: idle")
        record = json.loads(meshrt("ps", "--json"))
        (program,) = record["programs"]
        assert (program["pid"], program["problem"]) == (os.getpid(), "")
        run = program["program"]
        assert "2 idle, 2 stopped" in meshrt("ps", run)
        assert "stopped in the debugger" in meshrt("where", "debugee")
        assert "debugee 0-1" in meshrt("debug", "-c", "p debugee ranks(hosts=0) 6 * 7", "-c", "status").replace(
            "[0-1]", "debugee 0-1"
        )
        assert "42" in meshrt("p", "debugee", "ranks(hosts=0)", "6 * 7")
        assert json.loads(meshrt("memory", "--json"))["schema"] == "meshrt memory"
        # Its files are read there.
        assert meshrt("logs", run, "--json").startswith('{"schema": "meshrt logs"')
        problem = meshrt("postmortem", run, code=1)
        assert f"program {run} (pid {os.getpid()}) still runs, and no failure is recorded" in problem
        # At the prompt of this side they are not at hand.
        problem = meshrt("debug", "-c", "postmortem", code=1)
        assert f"meshrt postmortem {run} --via env" in problem
        me("continue")
        pending.get(WAIT)
    assert left_over() == []


def test_what_a_shell_prints_first_does_not_matter() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    assert str(os.getpid()) in meshrt("ps", via="sh -c 'echo welcome; echo to this machine; exec sh'")


def test_a_command_that_joins_its_words_and_has_them_split_again() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    as_ssh = shlex.join([sys.executable, "-c", "import os, sys; os.execvp('sh', ['sh', '-c', ' '.join(sys.argv[1:])])"])
    assert str(os.getpid()) in meshrt("ps", via=as_ssh)


def test_a_person_at_the_prompt() -> None:
    mesh = proc_mesh(n=2).spawn("debugee", Debugee).get(WAIT)
    pending = mesh.work.call()
    with person() as me:
        me.wait("debugee")
    words = ["-m", "meshrt", "debug", "--via", "env"]
    child = pexpect.spawn(sys.executable, words, env=environment(TERM="dumb"), encoding="utf-8", timeout=WAIT)
    try:
        child.expect("2 ranks of debugee stopped")
        child.sendline("continue")
        child.expect("resumed")
        assert pending.get(WAIT)
        child.sendline("quit")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("via", "why", "code"),
    [
        ("no-such-program", "no-such-program: No such file or directory", 2),
        ("", "", 0),
        ("env '", "is not a valid command: No closing quotation", 2),
        ("sh -c 'echo no route to host >&2; exit 255'", "has ended, with exit status 255, before meshrt answered", 1),
        ("sh -c 'exec env -i PATH=/nowhere /bin/sh'", "meshrt was not found: not in", 1),
        ("yes", "prints other output than that of meshrt", 1),
        ("sh -c 'echo meshrt tunnel 0.0.0; cat >/dev/null'", "that machine has meshrt 0.0.0, and this one ", 1),
    ],
)
def test_what_leads_nowhere_says_why(via: str, why: str, code: int) -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    if not via:
        assert str(os.getpid()) in meshrt("ps", via=via)
    elif "nowhere" in via:
        # An interpreter that is not there: the path of this one is tried first.
        script = f"import sys; sys.executable = '/no/python'; sys.argv[1:] = {['ps', '--via', via]!r}; "
        done = run_python("-c", script + "from meshrt.cli import main; sys.exit(main())")
        assert done.returncode == code and why in done.stderr
    else:
        assert why in meshrt("ps", via=via, code=code)
    assert left_over() == []


def test_a_terminal_on_the_way_is_refused() -> None:
    on_terminal = shlex.join([sys.executable, "-c", "import pty; pty.spawn(['sh'])"])
    assert "allocates a terminal there" in meshrt("ps", via=on_terminal, code=2)


def test_files_of_this_machine_are_not_opened_via_another() -> None:
    assert "cannot be combined with --via" in meshrt("debug", "--open", "/tmp/x", code=2)


def test_an_entry_by_which_an_ide_starts_the_adapter_says_nothing_of_another_machine() -> None:
    for option in ("--write-launch-json", "--no-serve"):
        assert "an entry for --stdio cannot have --via" in meshrt("dap", "--stdio", option, code=2)


def test_a_program_that_ends_meanwhile() -> None:
    """The prompt says so, and the process of COMMAND ends with it."""
    with another_program() as other:
        words = ["-m", "meshrt", "debug", "--via", "env"]
        child = pexpect.spawn(sys.executable, words, env=environment(TERM="dumb"), encoding="utf-8", timeout=WAIT)
        try:
            child.expect("nothing is stopped")
            other.send_signal(signal.SIGKILL)
            child.expect("ended")
            child.expect(pexpect.EOF)
        finally:
            child.close(force=True)
    wait_until(lambda: not left_over(), WAIT, "the directory is removed")
