"""The three ranks that go wrong in docs/debugger.md, at a terminal: what is typed there, and what it says is seen."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.debug.pty_harness import PROMPT, Screen, screen
from tests.support.programs import ROOT, environment
from tests.support.waiting import wait_until

STORY = (ROOT / "docs" / "debugger.md").read_text(encoding="utf-8")
#: What differs from run to run.
_VARIES = re.compile(
    r"0\.[0-9]{6,}|[0-9.]+e-?[0-9]+|/[\w/.-]*/|\(node1\)|[0-9]+ s\b|python3\.[0-9]+|\S+\.py:?\(?[0-9]+\)?"
)


@contextmanager
def training(fault: str, tmp_path: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """The program of the story, with its output in a file."""
    log = tmp_path / "training.log"
    with open(log, "w") as out:
        program = subprocess.Popen(
            [sys.executable, "training.py", fault],
            cwd=ROOT / "examples",
            env=environment(PYTHONUNBUFFERED="1", **env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
        )
        try:
            wait_until(lambda: "step 0: mean loss" in log.read_text(), 30, "the training does not begin")
            yield program
        finally:
            program.send_signal(signal.SIGKILL)
            program.wait()


@contextmanager
def debugger(program: subprocess.Popen[str]) -> Iterator[Screen]:
    with screen("-m", "meshrt.debug", "--pid", str(program.pid)) as me:
        me.sees(PROMPT)
        yield me


def told(begin: str, line: str) -> list[str]:
    """Return what docs/debugger.md shows below ``line``, which stands behind ``begin``."""
    _, _, rest = STORY.partition(begin)
    assert line in rest, line
    lines = rest.partition(line)[2].splitlines()[1:]
    end = next(i for i, text in enumerate(lines) if text.startswith(("meshrt_dbg> ", "(trainer ", "```")))
    return lines[:end]


def shows(me: Screen, begin: str, line: str) -> None:
    """Type ``line``; see what the documentation says, as far as it is the same every time."""
    me.types(line)
    for text in told(begin, line):
        for part in _VARIES.split(text.strip(" ├└│")):
            if sys.version_info >= (3, 14):  # its text of this error
                part = part.replace("float division by zero", "division by zero")
            if part.strip(" ,()[]|"):
                me.sees(part.strip())
    me.sees("meshrt_dbg>" if "attach" not in line else "(trainer")


@pytest.mark.slow
def test_one_hangs(tmp_path: Path) -> None:
    with training("hang", tmp_path) as program, debugger(program) as me:
        wait_until(lambda: _type_and_see(me, "status", "trainer 13: blocked at training.py"), 20)
        shows(me, "### One hangs", "where")
        shows(me, "### One hangs", "p trainer self.disk.locked()")
        shows(me, "### One hangs", "interrupt trainer ranks(13)")
        shows(me, "### One hangs", "attach trainer 13")
        me.types("p self.batches.qsize()")
        me.sees("0\n(trainer 13 hosts=3,gpus=1)")
        me.types("detach")
        me.sees("it stays stopped", PROMPT)
        me.types("continue")
        me.sees("rank 13 of trainer: resumed", PROMPT)
        me.types("p trainer ranks(13) self.disk.release()")
        me.sees("[13] None", PROMPT)
        wait_until(lambda: _type_and_see(me, "p trainer ranks(0) self.batches.qsize() > -1", "True"), 20)
        wait_until(lambda: "step 50" in (tmp_path / "training.log").read_text(), 30, "it does not go on")
        me.types("quit")
        me.ends()
        assert me.code == 0


def _type_and_see(me: Screen, line: str, text: str) -> bool:
    me.types(line)
    return text in me.sees(line, PROMPT)


def test_one_rank_computes_wrong_values(tmp_path: Path) -> None:
    with training("wrong", tmp_path) as program, debugger(program) as me:
        me.types("p trainer self.loss")
        me.sees("[6]", PROMPT)
        shows(me, "### One rank computes", "p --diff 0 trainer self.config")
        me.types("break training.py:51, self.weight < 0.1 ranks(6)")
        me.sees("breakpoint 1  training.py:51, self.weight < 0.1 on ranks(6)", PROMPT)
        shows(me, "### One rank computes", "wait trainer ranks(6)")
        me.types("cast trainer ranks(6) p number > 0, gradient > 0")
        me.sees("[6] (True, True)", PROMPT)
        shows(me, "### One rank computes", "clear 1")
        shows(me, "### One rank computes", "continue")


@pytest.mark.slow
def test_one_crashes(tmp_path: Path) -> None:
    with training("crash", tmp_path, MESHRT_POST_MORTEM="1") as program:
        failed = "meshrt: rank 9 of trainer failed at training.py:49 (step): ZeroDivisionError"
        wait_until(lambda: failed in (tmp_path / "training.log").read_text(), 20)
        with debugger(program) as me:
            shows(me, "### One crashes", "attach trainer 9")
            me.types("p number, batch")
            me.sees("(30, 0.0)", "(trainer 9")
            me.types("c")
            me.sees("step has raised on trainer 9: its caller gets the exception")
            me.sees("has ended")
            me.ends()
        assert program.wait(20) == 1


@pytest.mark.slow
def test_one_crashes_and_nobody_is_there(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with training("crash", tmp_path, MESHRT_POST_MORTEM="dump", MESHRT_RUNS=str(state)) as program:
        assert program.wait(30) == 1
    (file,) = state.rglob("post-mortem/*.json")
    with screen("-m", "meshrt.debug", "--open", str(file), cwd=tmp_path) as me:
        me.sees("trainer.step raised on rank 9", "division by zero", "-> gradient", "(trainer 9")
        for line, text in (
            ("p batch", "0.0"),
            ("w", "step()"),
            ("ll", "->         gradient = self.weight / batch"),
            ("p", "number = 30"),
            ("self.rank", "9"),
            ("p self.config", "{'lr': 0.1, 'momentum': 0.9}"),
            ("e", "Traceback"),
            ("p btach", "did you mean 'batch'?"),
            ("1 + 1", "nothing can be evaluated"),
            ("help", "the exception with its traceback"),
        ):
            me.types(line)
            me.sees(text, "(trainer 9")
        me.types("q")
        me.ends()
        assert me.code == 0
    half = tmp_path / "half.json"
    half.write_bytes(file.read_bytes()[:-50])
    with screen("-m", "meshrt.debug", "--open", str(half)) as me:
        assert "is cut off or damaged" in me.ends()
        assert me.code == 2
