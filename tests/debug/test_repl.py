"""The prompt itself, through a pseudo-terminal: typed lines, seen text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from tests.debug.harness import person
from tests.debug.pty_harness import PROMPT, SECONDS, Screen, screen
from tests.support.programs import ROOT
from tests.support.waiting import wait_until

EXAMPLES = ROOT / "examples"

WAITING = """
from meshrt import proc_mesh
from my_actors import DebugeeActor
print(proc_mesh(hosts=2, gpus=2).spawn("debugee", DebugeeActor).get().to_debug.call().get())
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A script that never mentions the debugger."""
    (tmp_path / "my_actors.py").write_text((EXAMPLES / "my_actors.py").read_text())
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    return script


@contextmanager
def beside(script: Path) -> Iterator[tuple[Screen, Screen]]:
    """A program whose ranks stand, and a debugger at a terminal of its own."""
    with screen(str(script), MESHRT_DEBUG_AUTO="0") as program:
        program.sees("stopped at")
        with screen("-m", "meshrt.debug") as me:
            me.sees(PROMPT)
            yield program, me


@pytest.mark.slow
def test_the_session_of_the_readme() -> None:
    with screen("debugging.py", cwd=EXAMPLES) as me:
        me.sees_stops(16, "debugee", "my_actors.py:16 (to_debug)")
        me.sees(PROMPT)
        me.types("list")
        me.sees("Actor Name", "|     13 | {'hosts': 3, 'gpus': 1}", "|     15 |", PROMPT)
        me.types("attach debugee 13")
        me.sees("attached to debugee 13", "-> breakpoint()", "(debugee 13 hosts=3,gpus=1)")
        me.types("n")
        me.sees("-> share = share_of(total, rank)", "(debugee 13")
        me.types("s")
        me.sees("--Call--", "share_of()", "(debugee 13")
        me.types("p rank")
        me.sees("13\n(debugee 13")
        me.types("detach")
        me.sees("detached from debugee 13", PROMPT)
        me.types("cast debugee ranks(0:4) n")
        me.sees("[0-3]\n", PROMPT)
        me.types("cast debugee ranks(hosts=2:, gpus=(0,3)) p total")
        me.sees("[8,11-12,15] 50", PROMPT)
        me.types("list")
        me.sees("my_actors.share_of", PROMPT)
        me.types("continue")
        me.sees("16 ranks of debugee (0-15): resumed", "nothing is stopped any more", "[15] 115")
        me.ends()
        assert me.code == 0


@pytest.mark.slow
def test_the_prompt_opens_by_itself(waiting: Path) -> None:
    with screen(str(waiting)) as me:
        me.sees_stops(4, "debugee", "my_actors.py:16 (to_debug)")
        me.sees(PROMPT)
        me.types("cast debugee ranks(:) p rank // 2")
        me.sees("[0-1] 0\n[2-3] 1\n", PROMPT)
        me.types("c")
        me.sees("4 ranks of debugee (0-3): resumed", "[3] 103")
        me.ends()
        assert me.code == 0


@pytest.mark.slow
def test_it_does_not_open_where_it_is_not_wanted(waiting: Path) -> None:
    with screen(str(waiting), MESHRT_DEBUG_AUTO="0") as program:
        shown = program.sees_stops(4, "debugee", "my_actors.py:16 (to_debug); python -m meshrt.debug")
        assert PROMPT not in shown
        with screen("-m", "meshrt.debug") as me:
            me.sees("4 ranks of debugee stopped", PROMPT)
            me.types("c")
            me.sees("4 ranks of debugee (0-3): resumed")
            me.sees("has ended")
            me.ends()
            assert me.code == 0
        program.ends()
        assert program.code == 0


@pytest.mark.slow
def test_leaving_keeps_ranks_stopped_and_the_prompt_away(waiting: Path) -> None:
    with screen(str(waiting)) as program:
        program.sees(PROMPT)
        program.types("quit")
        program.sees("ranks stay stopped")
        with screen("-m", "meshrt.debug", "-c", "list", "-c", "continue") as me:
            shown = me.ends()
            assert shown.count("| debugee ") == 4
            assert "4 ranks of debugee (0-3): resumed" in shown
            assert me.code == 0
        assert PROMPT not in program.ends()
        assert program.code == 0


@pytest.mark.slow
def test_leaving_the_prompt_that_a_script_opened() -> None:
    with screen("debugging.py", cwd=EXAMPLES) as program:
        program.sees("stopped at", PROMPT)
        program.types("quit")
        program.sees("ranks stay stopped")
        with screen("-m", "meshrt.debug", "-c", "wait debugee 0.5", "-c", "wait nobody 0.6") as me:
            assert "no actor 'nobody'" in me.ends()
        with screen("-m", "meshrt.debug", "-c", "continue") as me:
            assert "16 ranks of debugee (0-15): resumed" in me.ends()
        assert PROMPT not in program.ends()
        assert program.code == 0


@pytest.mark.slow
@pytest.mark.row("D4")
def test_two_terminals_at_once(waiting: Path) -> None:
    with beside(waiting) as (program, one), screen("-m", "meshrt.debug") as two:
        two.sees(PROMPT)
        first, second = (f"process {terminal.child.pid}" for terminal in (one, two))
        one.types("attach debugee 2")
        one.sees("(debugee 2 hosts=1,gpus=0)")
        two.sees(f"{first}: attach debugee 2", PROMPT)
        one.types("n")
        one.sees("-> share = share_of(total, rank)", "(debugee 2")
        two.sees(f"{first} at debugee 2: n", PROMPT)
        two.types("attach debugee 2")
        two.sees("held by the terminal of process", "--steal", PROMPT)
        two.types("attach --steal debugee 2")
        two.sees("(debugee 2 hosts=1,gpus=0)")
        one.sees_all("has taken over the rank", f"{second}: attach --steal debugee 2")
        two.types("p total")
        two.sees("50\n(debugee 2")
        one.sees(f"{second} at debugee 2: p total", PROMPT)
        two.types("detach")
        two.sees(PROMPT)
        one.types("postmortem on")
        one.sees("all actors: on", PROMPT)
        two.sees(f"{first}: postmortem on", PROMPT)
        one.types("list")  # which changes nothing, is not told
        one.sees("| debugee ", PROMPT)
        one.types("continue")
        one.sees("4 ranks of debugee (0-3): resumed")
        assert "list" not in two.sees(f"{first}: continue")
        program.ends()


def test_keys_of_a_terminal(waiting: Path) -> None:
    with screen(str(waiting)) as me:
        me.sees(PROMPT)
        me.types("attach debugee 1")
        me.sees("(debugee 1 hosts=0,gpus=1)")
        me.types("import time; time.sleep(1000)")
        me.sees("is running the line")
        me.child.sendintr()
        me.sees("*** KeyboardInterrupt", "(debugee 1")
        me.types("detach")
        me.sees(PROMPT)
        me.child.sendintr()
        me.sees("`quit` (or Ctrl-D) leaves the debugger, the program continues; then Ctrl-C ends the program", PROMPT)
        me.child.send("nonsense")
        me.sees("nonsense")
        me.child.sendintr()  # a line is given up, nothing else
        me.sees(PROMPT)
        me.types("cast debugee ranks(0) c")
        me.sees("rank 0 of debugee: resumed", PROMPT)
        me.types("cast debugee ranks(:) p rank")
        # It "was resumed and is running" until the root is told that its call has ended, and is "not stopped" then.
        me.sees("[1] 1", "[2] 2", "rank 0 of debugee: ", PROMPT)
        me.child.send("sta\t")
        me.sees("status")
        me.types("")
        me.sees("4 ranks alive", PROMPT)
        me.child.sendeof()
        me.sees("ranks stay stopped")


@pytest.mark.slow
def test_it_opens_again_at_the_next_stop(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from meshrt import Actor, endpoint, proc_mesh\n"
        "class Twice(Actor):\n"
        "    @endpoint\n"
        "    def run(self, n):\n"
        "        breakpoint()\n"
        "        return n\n"
        "mesh = proc_mesh(n=2).spawn('twice', Twice).get()\n"
        "for n in range(3):\n"
        "    print('value', mesh.run.call(n).get().values(), flush=True)\n"
    )
    with screen(str(tmp_path / "script.py")) as me:
        for n in range(3):
            me.sees_stops(2, "twice", "script.py:5 (run)")
            me.sees(PROMPT)
            me.types("c")
            me.sees("resumed", f"value [{n}, {n}]")
        me.ends()
        assert me.code == 0


def test_waiting_for_a_stop_that_never_comes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from meshrt import debug_client, proc_mesh\n"
        "mesh = proc_mesh(n=1)\n"
        "debug_client().enter.call_one().get()\n"
        "print('goes', 'on')\n"
    )
    with screen(str(tmp_path / "script.py")) as me:
        me.sees("waiting for a rank to stop (Ctrl-C leaves)")
        me.child.sendintr()
        me.sees("left the debugger", "goes on")
        me.ends()
        assert me.code == 0


@pytest.mark.slow
def test_a_script_enters_after_all_ranks_have_stopped(tmp_path: Path) -> None:
    """What stands already is not over."""
    (tmp_path / "script.py").write_text(
        "import os, time\nos.environ['TERM'] = 'dumb'\n"  # its prompt is there in no time
        "from meshrt import *\nfrom meshrt.debug.prompt import entry\n"
        "from meshrt.transport.tools import connect, own_program\n"
        "from meshrt.inspect.operations import ListRanks\n"
        "class Twice(Actor):\n    @endpoint\n    def run(self): breakpoint(); return 1\n"
        "mesh = proc_mesh(n=2).spawn('twice', Twice).get()\n"
        "call = mesh.run.call()\n"
        "tool = connect(own_program(), lambda *_: None, lambda: None)\n"
        "while len(tool.ask(ListRanks()).rows) < 2: time.sleep(0.01)\n"
        "debug_client().enter.call_one().get()\n"
        "print('went', 'on', call.done())\n"
    )
    with screen(str(tmp_path / "script.py")) as me:
        me.sees_stops(2, "twice", "script.py:")
        me.sees(PROMPT)
        me.types("list")
        me.sees("twice        |      1 |", PROMPT)
        me.types("c")
        me.sees("resumed", "went on True")
        me.ends()
        assert me.code == 0


@pytest.mark.slow
def test_aborting_many_asks_first(waiting: Path) -> None:
    with screen(str(waiting)) as me:
        me.sees(PROMPT)
        me.types("cast debugee ranks(1:) q")
        me.sees("abort the endpoint of debugee on ranks(1:)? the callers get errors [y/N]")
        me.types("")
        me.sees("not aborted", PROMPT)
        me.types("cast debugee ranks(1:) q")
        me.sees("[y/N]")
        me.types("y")
        me.sees("3 ranks of debugee (1-3): aborted", "the script's call has failed", PROMPT)
        me.types("c")
        me.sees("a person aborted this endpoint from the debugger (q)")
        me.ends()
        assert me.code == 1


@pytest.mark.slow
def test_completion_knows_actors_dims_and_the_names_of_a_frame(waiting: Path) -> None:
    with beside(waiting) as (program, me):
        me.child.send("att\t")
        me.sees("attach")
        me.child.send("deb\t")
        me.sees("debugee")
        me.types("2")
        me.sees("(debugee 2 hosts=1,gpus=0)")
        me.child.send("p tot\t")
        me.sees("p total")
        me.types("")
        me.sees("50", "(debugee 2")
        me.child.send("p self.to_d\t")
        me.sees("self.to_debug")
        me.types("")
        me.sees("to_debug", "(debugee 2")
        me.types("detach")
        me.sees(PROMPT)
        me.child.send("cast debugee ranks(hos\t")
        me.sees("ranks(hosts=")
        me.types("1) p rank")
        me.sees("[2] 2\n[3] 3\n", PROMPT)
        me.child.send("postm\t")
        me.sees("ortem")
        me.child.send("du\t")
        me.sees("mp")
        me.child.sendintr()
        me.sees(PROMPT)
        me.child.send("\x1b[A")  # the last line of the history
        me.sees("cast debugee ranks(hosts=1) p rank")
        me.types("")
        me.sees("[2] 2\n[3] 3\n", PROMPT)
        me.types("c")
        me.sees("resumed")
        program.ends()


#: Does not end, and waits in no call.
ENDLESS = "[0 for _ in iter(int, 1) if 0]"


def cancels(me: Screen, line: str, progress: str) -> None:
    """Type a line that no rank answers, and Ctrl-C; ``progress``: what is shown of the ranks."""
    me.types(line)
    me.sees(f"{progress}; Ctrl-C ends the wait")
    me.child.sendintr()
    me.sees(f"{progress}: cancelled", PROMPT)


def interrupts(me: Screen, line: str, state: str = "running the line; Ctrl-C cancels the line") -> None:
    """Type a line that rank 2 does not answer, and Ctrl-C."""
    me.types(line)
    me.sees(f"[debugee 2 is {state}]")
    me.child.sendintr()


@contextmanager
def attached(script: Path) -> Iterator[Screen]:
    """As `beside`, at the prompt of rank 2; ends both."""
    with beside(script) as (program, me):
        me.types("attach debugee 2")
        me.sees("(debugee 2")
        yield me
        me.types("quit")
        me.ends()
        program.child.sendintr()


def test_ctrl_c_cancels_what_was_cast(waiting: Path) -> None:
    with beside(waiting) as (program, me):
        cancels(me, "cast debugee ranks(1:3) import time; time.sleep(1000)", "0/2 answered, waiting for 1-2")
        me.sees_stops(2, "debugee", "my_actors.py:")
        me.types("p debugee rank")
        me.sees("[0] 0\n[1] 1\n[2] 2\n[3] 3\n", PROMPT)
        me.types("quit")
        me.ends()
        program.child.sendintr()


def test_ctrl_c_cancels_the_line_of_a_rank(waiting: Path) -> None:
    with attached(waiting) as me:
        for line in (ENDLESS, "import time; time.sleep(1000)"):
            interrupts(me, line)
            me.sees("*** KeyboardInterrupt", "(debugee 2")
        me.types("p rank + 40")
        me.sees("42\n", "(debugee 2")
        interrupts(me, r"exec('import time\nwhile 1:\n try: time.sleep(1000)\n except KeyboardInterrupt: pass')")
        me.sees("[debugee 2 is still running the line; Ctrl-C returns to the mesh's prompt]")
        me.child.sendintr()
        me.sees("detached from debugee 2; its state is unchanged", PROMPT)
        me.types("list")
        me.sees('running "exec(', PROMPT)


def test_ctrl_c_reaches_what_runs_inside_of_other_commands(waiting: Path) -> None:
    with attached(waiting) as me:
        me.types("debug __import__('time').sleep(1000)")
        me.sees("ENTERING RECURSIVE DEBUGGER", "((Pdb))")
        interrupts(me, "c")  # the line that runs is `debug` still
        me.sees("*** KeyboardInterrupt", "(debugee 2")
        me.types("interact")
        me.sees(">>>")
        interrupts(me, ENDLESS)
        assert "meshrt" not in me.sees('File "<console>", line 1, in <module>', "KeyboardInterrupt", ">>>")
        me.types("exit()")
        me.sees("(debugee 2")
        me.types("detach")
        me.sees(PROMPT)


def test_a_rank_that_evaluates_what_is_displayed_can_be_interrupted(waiting: Path) -> None:
    with attached(waiting) as me:
        interrupts(me, f"display {ENDLESS}")
        me.sees("raised KeyboardInterrupt", "(debugee 2")
        interrupts(me, "n", "running; Ctrl-C returns to the mesh's prompt")  # stopped, and not at its prompt yet
        me.sees("detached from debugee 2; its state is unchanged", PROMPT)
        me.types("attach debugee 2")
        assert "\n> " not in me.sees("attached to debugee 2", "[debugee 2 is running]")
        me.child.sendintr()
        me.sees("detached from debugee 2; its state is unchanged", PROMPT)
        me.types("interrupt debugee ranks(2)")
        me.sees("-> share = share_of(total, rank)", PROMPT)


def test_ctrl_c_cancels_an_expression_on_ranks_that_run(waiting: Path) -> None:
    with beside(waiting) as (program, me):
        me.types("cast debugee ranks(0) c")
        me.sees("rank 0 of debugee: resumed", PROMPT)
        threads = "[each.name for each in __import__('threading').enumerate()].count('meshrt-eval')"
        cancels(me, f"p debugee ranks(0) {ENDLESS}", "0/1 answered, waiting for 0")

        def has_ended() -> bool:
            me.types(f"p debugee ranks(0) {threads}")
            return "[0] 1\n" in me.sees("[0] ", PROMPT)

        wait_until(has_ended, SECONDS)  # once the interrupt has reached its thread
        with screen("-m", "meshrt", "p", "debugee", "ranks(0)", ENDLESS) as shell:
            shell.sees("Ctrl-C ends the wait")
            shell.child.sendintr()
            assert "waiting for 0: cancelled" in shell.ends() and shell.code == 130
        me.types("quit")
        me.ends()
        program.child.sendintr()


def test_a_long_answer_in_a_shell_is_shown_by_the_pager(waiting: Path) -> None:
    with screen(str(waiting), MESHRT_DEBUG_AUTO="0") as program:
        program.sees("stopped at")
        words = ("-m", "meshrt", "pp", "-v", "debugee", "ranks(0)")
        with screen(*words, "list(range(200))", MESHRT_PAGER="sed s/^/paged:/") as me:
            assert "paged: 198," in me.ends() and me.code == 0
        with screen(*words, "list(range(20))", MESHRT_PAGER="sed s/^/paged:/") as me:
            assert "paged" not in me.ends() and me.code == 0
        program.child.sendintr()


def test_a_long_answer_at_the_prompt_is_shown_by_the_pager(waiting: Path) -> None:
    with screen(str(waiting), MESHRT_DEBUG_AUTO="0") as program:
        program.sees("stopped at")
        with screen("-m", "meshrt.debug", MESHRT_PAGER="sed s/^/paged:/") as me:
            me.sees(PROMPT)
            me.types("pp -v debugee ranks(0) list(range(200))")
            me.sees("paged: 198,", PROMPT)
            me.types("pp -v debugee ranks(0) list(range(20))")
            assert "paged" not in me.sees(" 18,", PROMPT)
            me.types("help")
            assert "paged" not in me.sees("`help COMMAND`", PROMPT)
            me.types("quit")
            me.ends()
        program.child.sendintr()


def test_colours_at_the_prompt_and_without_them(waiting: Path) -> None:
    with screen(str(waiting), MESHRT_DEBUG_AUTO="0") as program:
        program.sees("stopped at")
        for no_colour in ("", "1"):
            with screen("-m", "meshrt.debug", NO_COLOR=no_colour) as me:
                me.sees(PROMPT)
                me.types("p debugee ranks(0) 40 + 2")
                me.child.expect(r"\[0\](\x1b\[0m)? 42")
                assert bool(me.child.match[1]) is not bool(no_colour)
                me.types("quit")
                me.ends()
        program.child.sendintr()


def test_help_of_everything() -> None:
    proc_mesh(gpus=1)
    with person() as me:
        overview = me("help")
        assert "`help COMMAND`" in overview
        for command in COMMANDS.offered(Offer.PROMPT):
            assert re.search(rf"^{command.name} +{re.escape(command.summary)}$", overview, re.MULTILINE), command.name
            shown = me(f"help {command.name}")
            written = command.usage(Offer.PROMPT)
            assert shown.startswith(f"{written}{'  (also: ' if command.aliases else ''}"), command.name
            said = [command.summary, *str(command.details).splitlines()]
            assert shown.splitlines()[1 : 1 + len(said)] == said
            for alias in command.aliases:
                assert alias in shown.splitlines()[0]
                assert me(f"? {alias}") == shown
        assert "no command 'wehre'; did you mean 'where'?" in me("wehre")
        assert "no command 'wehre'; did you mean 'where'?" in me("help wehre")
        assert "no actor 'debugge'" in me("p debugge rank")
