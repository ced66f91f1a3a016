"""An exception that a thread of the script lets out: the program has failed, whatever its main thread does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python

HEAD = """
import sys, threading
import meshrt
from meshrt import Actor, endpoint, proc_mesh

class Trainer(Actor):
    @endpoint
    def fail(self): raise KeyError("on a rank")

def load(): raise ValueError("bad shard")

def in_a_thread(function):
    thread = threading.Thread(target=function, name="loader")
    thread.start()
    thread.join()

"""


def run(tmp_path: Path, script: str) -> tuple[int, list[str], str]:
    """Run a script as the worker of a launcher; returns its status, its standard error, and what the launcher reads."""
    path, told = tmp_path / "script.py", tmp_path / "error.json"
    path.write_text(HEAD + script)
    done = run_python(str(path), seconds=60, env=environment(TORCHELASTIC_ERROR_FILE=str(told)))
    headline = json.loads(told.read_text())["message"]["message"] if told.exists() else ""
    return done.returncode, done.stderr.splitlines(), headline


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["", "raise RuntimeError('of the main thread')"], ids=["ends well", "fails, too"])
def test_with_a_mesh(tmp_path: Path, rest: str) -> None:
    status, lines, told = run(tmp_path, f"proc_mesh(n=1).get()\nin_a_thread(load)\n{rest}\n")
    assert status == 1
    (root,) = [index for index, line in enumerate(lines) if line.startswith("ROOT CAUSE  the script on ")]
    assert lines[root + 1 : root + 3] == ["  what     ValueError: bad shard", "  where    thread 'loader'"]
    assert told == "the script: ValueError: bad shard"


def test_what_a_thread_was_told_of_by_a_rank_is_the_failure_of_that_rank(tmp_path: Path) -> None:
    script = """
trainer = proc_mesh(n=1, name="train").spawn("trainer", Trainer)
in_a_thread(lambda: trainer.fail.call().get())
"""
    status, lines, told = run(tmp_path, script)
    assert status == 1
    assert any(line.startswith("ROOT CAUSE  trainer rank 0 ") for line in lines)
    assert any("the script, " in line and "in thread 'loader'" in line for line in lines)
    assert "KeyError: 'on a rank'" in told


@pytest.mark.parametrize("rest", ["pass", "raise RuntimeError('of the main thread')"], ids=["ends well", "fails, too"])
def test_under_record_without_a_mesh(tmp_path: Path, rest: str) -> None:
    script = f"""
@meshrt.record
def main():
    in_a_thread(load)
    {rest}
main()
"""
    status, _, told = run(tmp_path, script)
    assert status == 1
    assert told == "ValueError: bad shard"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_hook_of_the_program_decides_itself(tmp_path: Path, when: str) -> None:
    hook, mesh = "threading.excepthook = lambda args: print('mine', file=sys.stderr)", "proc_mesh(n=1).get()"
    first, second = (hook, mesh) if when == "before" else (mesh, hook)
    status, lines, told = run(tmp_path, f"{first}\n{second}\nin_a_thread(load)\n")
    assert (status, lines, told) == (0, ["mine"], "")


def test_it_has_failed_also_where_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    unread = "import os\nreader, writer = os.pipe()\nos.close(reader)\nos.dup2(writer, 2)\n"
    status, _, told = run(tmp_path, f"proc_mesh(n=1).get()\n{unread}in_a_thread(load)\n")
    assert (status, told) == (1, "the script: ValueError: bad shard")


def test_a_thread_that_exits_has_not_failed(tmp_path: Path) -> None:
    status, lines, told = run(tmp_path, "proc_mesh(n=1).get()\nin_a_thread(lambda: sys.exit(3))\n")
    assert (status, lines, told) == (0, [], "")


WAITING = """
import os, signal, time
class Sleeper(Actor):
    @endpoint
    def sleep(self): time.sleep(600)
    @endpoint
    def begun(self): pass

sleeper = proc_mesh(n=1, name="train").spawn("sleeper", Sleeper).get()
waiting = threading.Event()

def wait():
    future = sleeper.sleep.call()
    waiting.set()
    future.get()

def wait_again_and_again():
    try:
        wait()
    finally:
        sleeper.begun.call().get()

async def await_it():
    future = sleeper.sleep.call()
    waiting.set()
    await future

"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wait", "wait_again_and_again", "lambda: __import__('asyncio').run(await_it())"])
def test_a_thread_that_waits_does_not_keep_a_failed_program_alive(tmp_path: Path, how: str) -> None:
    script = f"""{WAITING}
threading.Thread(target={how}, name="waiter").start()
waiting.wait()
raise ValueError("of the main thread")
"""
    status, lines, told = run(tmp_path, script)
    assert status == 1
    assert "ValueError: of the main thread" in lines
    assert "Exception in thread waiter:" in lines
    assert any(
        line.endswith("the main thread of the script has ended with ValueError: of the main thread") for line in lines
    )
    assert not any(line.startswith("ROOT CAUSE") for line in lines)
    assert told == "ValueError: of the main thread"


def test_a_thread_that_waits_keeps_a_program_alive_that_has_not_failed(tmp_path: Path) -> None:
    script = f"""{WAITING}
def wait_a_little():
    future = sleeper.begun.call()
    ended.wait()
    future.get()
    print("answered", file=sys.stderr)

ended = threading.Event()
threading._register_atexit(ended.set)  # the main thread has ended
threading.Thread(target=wait_a_little).start()
"""
    assert run(tmp_path, script) == (0, ["answered"], "")
