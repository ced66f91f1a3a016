"""At a pseudo-terminal: what comes while one types, what others see of it, and how lines are edited."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.debug.pty_harness import PROMPT, Screen, screen
from tests.debug.waits import line_of

SCRIPT = """
from meshrt import proc_mesh
from tests.debug.waits import Waits
mesh = proc_mesh(gpus={ranks}).spawn("w", Waits).get()
print("up", mesh.pid.call().get().values(), flush=True)
while (line := input()) != "end":
    exec(line)
"""
LEFT, CTRL_A, CTRL_E, UP = "\x1b[D", "\x01", "\x05", "\x1b[A"


@contextmanager
def program(tmp_path: Path, ranks: int) -> Iterator[tuple[Screen, list[int]]]:
    """A program that does what is typed at its terminal, with the pids of its ranks."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(ranks=ranks))
    with screen(str(script), MESHRT_DEBUG_AUTO="0") as typed:
        typed.sees("up [")
        yield typed, [int(pid) for pid in typed.sees("]").removesuffix("]").split(",")]


#: The debugger says for whom it waits when the others have answered, and not at some time.
SAYS_SO_THEN = """
import runpy
from meshrt.debug.prompt import repl
from meshrt.debug.prompt.answers import Answers
repl.HINT_SECONDS, add = 60.0, Answers.add
def added(answers, report):
    add(answers, report)
    repl.HINT_SECONDS = 0.0 if answers.pending() == "7/8 answered, waiting for 3" else 60.0
Answers.add = added
runpy.run_module("meshrt.debug", run_name="__main__")
"""


@contextmanager
def debugger(tmp_path: Path, *how: str) -> Iterator[Screen]:
    with screen(*(how or ("-m", "meshrt.debug")), XDG_STATE_HOME=str(tmp_path)) as me:
        me.sees(PROMPT)
        yield me


def test_what_happens_is_announced_while_one_types(tmp_path: Path) -> None:
    with program(tmp_path, 3) as (typed, pids), screen("-m", "meshrt.debug") as me:
        me.sees("nothing is stopped yet", PROMPT)
        me.child.send("li")
        me.sees("li")
        typed.types("result = mesh.slice(gpus=0).slow.call(())")
        me.sees(f"rank 0 of w stopped at waits.py:{line_of('slow')} (slow)", PROMPT)
        me.types("st")
        me.sees("list", "| w ", PROMPT)
        me.types("postmortem on")
        me.sees("all actors: on", PROMPT)
        me.child.send("list po")
        me.sees("list po")
        typed.types("result = mesh.fail.call((1,))")
        me.sees(f"rank 1 of w failed at waits.py:{line_of('fail')} (fail): ValueError: rank 1 is bad, 7", PROMPT)
        me.types("st-mortem")
        me.sees("list post-mortem", "| w ", "| post-mortem | ", f"| waits.py:{line_of('fail')} (fail) |", PROMPT)
        me.child.send("sta")
        me.sees("sta")
        os.kill(pids[2], signal.SIGKILL)
        me.sees("rank 2 of w has ended: was killed by SIGKILL", PROMPT)
        me.types("tus")
        me.sees("status", "ended: 2 (was killed by SIGKILL)", "w 1: post-mortem", PROMPT)


@pytest.mark.slow
def test_lines_are_edited_and_kept_for_the_next_session(tmp_path: Path) -> None:
    with program(tmp_path, 1):
        with debugger(tmp_path) as me:
            me.child.send("tatus" + CTRL_A + "s")
            me.types("")
            me.sees("1 rank alive", PROMPT)
            me.child.send("p slf.rnk" + LEFT * 6 + "e" + LEFT * 3 + " w")  # "p w self.rnk"
            me.types(CTRL_E + LEFT * 2 + "a")
            me.sees("p w self.rank", "[0] 0", PROMPT)
            me.types("quit")
            me.ends()
        assert (tmp_path / "meshrt" / "debug_history").stat().st_mode & 0o777 == 0o600
        with debugger(tmp_path) as me:
            me.child.send(UP)
            me.sees("quit")
            me.child.send(UP)
            me.sees("p w self.rank")
            me.types(" + 41")
            me.sees("[0] 41", PROMPT)
            me.child.send(UP * 4)
            me.sees("status")
            me.types("")
            me.sees("1 rank alive", PROMPT)


def test_many_step_as_one_and_one_takes_long(tmp_path: Path) -> None:
    with program(tmp_path, 8) as (typed, _), debugger(tmp_path, "-c", SAYS_SO_THEN) as me:
        typed.types("print('slow', mesh.slow.call((3,)).get().values())")
        me.sees_stops(8, "w", f"waits.py:{line_of('slow')} (slow)")  # later, they would be where the steps have led
        me.types("wait w")
        me.sees("stopped: 8 ranks: 0-7", PROMPT)
        me.types("cast w ranks(:) n")
        me.sees(f"[0-7]\n> {Path(__file__).parent}/waits.py({line_of('step')})slow()", PROMPT)
        me.types("cast w ranks(:) n")
        me.sees("7/8 answered, waiting for 3; Ctrl-C ends the wait")
        me.child.sendintr()
        me.sees(
            "[0-2,4-7]\n> ",
            f"waits.py({line_of('stepped')})slow()",
            "waiting for 3: this command does not wait any longer",
            PROMPT,
        )
        me.types("cast w ranks(:) p 1")
        me.sees("[0-2,4-7] 1\n", "rank 3 of w: running (stepping)", PROMPT)
        me.types("where w ranks(3)")
        me.sees("1 rank of", f"slow  debug/waits.py:{line_of('step')}", "_wait", PROMPT)
        me.types("p w ranks(3) self.go.set()")
        me.sees("[3] None")
        me.sees(f"rank 3 of w stopped at waits.py:{line_of('stepped')} (slow)", PROMPT)
        me.types("cast w ranks(:) bt")
        me.sees(f"[0-7]\n> {Path(__file__).parent}/waits.py({line_of('stepped')})slow()", PROMPT)
        me.types("continue")
        me.sees("8 ranks of w (0-7): resumed", PROMPT)
        typed.sees("slow [7, 7, 7, 7, 7, 7, 7, 7]")
