"""The standard streams of the process while some of its threads are at a prompt."""

from __future__ import annotations

import contextlib
import io
import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.debug.rank.console import Console, Released, catch_streams, displayed, routed
from tests.unit.debug.fakes import FakeRank


class Prompt:
    """Keeps what is printed at it."""

    def __init__(self, *lines: str) -> None:
        self.text = ""
        self.lines = list(lines)

    def write(self, text: str, /) -> int:
        self.text += text
        return len(text)

    def readline(self) -> str:
        return self.lines.pop(0)


class Mine(io.StringIO):
    """A stream with an attribute of the user's."""

    colour = "red"


def on_a_thread(function: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(10)
    assert results, "it raised, or hangs"
    return results[0]


@contextlib.contextmanager
def another_at_a_prompt(prompt: Prompt) -> Iterator[None]:
    ready, over = threading.Event(), threading.Event()

    def work() -> None:
        with routed(prompt):
            ready.set()
            over.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join(10)


Files = Callable[[], tuple[Path, Path]]


@pytest.fixture
def use_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Real files as the standard streams, from the call on: pytest sets its own ones before each test."""
    out, err, given = tmp_path / "out", tmp_path / "err", tmp_path / "in"
    given.write_text("one\ntwo\nthree\n")
    with out.open("w") as stdout, err.open("w") as stderr, given.open() as stdin:

        def use() -> tuple[Path, Path]:
            for name, stream in (("stdout", stdout), ("stderr", stderr), ("stdin", stdin)):
                monkeypatch.setattr(sys, name, stream)
            return out, err

        yield use
        monkeypatch.undo()


def test_other_threads_have_all_of_their_streams(use_files: Files) -> None:
    files = use_files()
    before = sys.stdout, sys.stderr, sys.stdin
    with another_at_a_prompt(Prompt()):
        assert sys.stdout.fileno() == before[0].fileno()
        assert sys.stderr.fileno() == before[1].fileno()
        assert (sys.stdin.fileno(), sys.stdin.isatty(), sys.stdin.name) == (before[2].fileno(), False, before[2].name)
        assert isinstance(sys.stdout, io.TextIOWrapper)
        print("text")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.flush()
        subprocess.run(["echo", "child"], stdout=sys.stdout, check=True)
        subprocess.run(["sh", "-c", "echo oops >&2"], stderr=sys.stderr, check=True)
        print("error", file=sys.stderr, flush=True)
        sys.stdout.reconfigure(line_buffering=True)
        assert sys.stdout.line_buffering
        assert (sys.stdin.readline(), next(sys.stdin), sys.stdin.read()) == ("one\n", "two\n", "three\n")
    assert (sys.stdout, sys.stderr, sys.stdin) == before
    assert [path.read_text() for path in files] == ["text\nbytes\nchild\n", "oops\nerror\n"]


def test_attributes_go_to_the_stream_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Mine()
    monkeypatch.setattr(sys, "stdout", mine)
    with another_at_a_prompt(Prompt()):
        stream: Any = sys.stdout
        assert stream.colour == "red"
        stream.colour = "blue"
    assert mine.colour == "blue"


def test_a_thread_at_a_prompt_has_no_file(use_files: Files) -> None:
    files = use_files()
    prompt = Prompt("typed\n", "asked\n", "bytes\n")
    with routed(prompt):
        for stream in (sys.stdout, sys.stderr, sys.stdin):
            with pytest.raises(io.UnsupportedOperation):
                stream.fileno()
            assert (stream.isatty(), stream.encoding) == (False, "utf-8")
        print("out")
        print("err", file=sys.stderr)
        sys.stdout.buffer.write("\u00fc\n".encode())
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        sys.stdout.close()
        assert (sys.stdin.readline(), input("? "), sys.stdin.buffer.readline()) == ("typed\n", "asked", b"bytes\n")
    assert prompt.text == "out\nerr\n\u00fc\n? "
    assert [path.read_text() for path in files] == ["", ""]


def test_a_process_without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    prompt = Prompt()
    with another_at_a_prompt(prompt):
        print("nobody hears it")
    assert sys.stdout is None
    assert prompt.text == ""


def test_a_logging_handler_made_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    prompt = Prompt()
    with routed(prompt):
        handler = on_a_thread(logging.StreamHandler)
        handler.emit(logging.makeLogRecord({"msg": "at the prompt"}))
    handler.emit(logging.makeLogRecord({"msg": "afterwards"}))
    monkeypatch.setattr(sys, "stderr", second)
    with another_at_a_prompt(Prompt()):
        handler.emit(logging.makeLogRecord({"msg": "while another prompt is open"}))
    with routed(Prompt()):
        handler.emit(logging.makeLogRecord({"msg": "at a later one"}))
    assert prompt.text == "at the prompt\n"
    assert first.getvalue() == "afterwards\nwhile another prompt is open\nat a later one\n"
    assert second.getvalue() == ""


def test_a_redirection_that_outlives_the_prompt(use_files: Files) -> None:
    files = use_files()
    before = sys.stdout, sys.stderr
    own_out, own_err = io.StringIO(), io.StringIO()
    stack = contextlib.ExitStack()
    with another_at_a_prompt(Prompt()):
        stack.enter_context(contextlib.redirect_stdout(own_out))
        stack.enter_context(contextlib.redirect_stderr(own_err))
        print("mine")
    assert sys.stdout is own_out
    stack.close()
    print("out", flush=True)
    print("err", file=sys.stderr, flush=True)
    assert (sys.stdout.fileno(), sys.stderr.fileno()) == (before[0].fileno(), before[1].fileno())
    assert [path.read_text() for path in files] == ["out\n", "err\n"]
    assert (own_out.getvalue(), own_err.getvalue()) == ("mine\n", "")
    with routed(Prompt()):
        print("at the next prompt")
    assert (sys.stdout, sys.stderr) == before  # and nothing piles up
    assert files[0].read_text() == "out\n"


def test_a_redirection_that_begins_before_and_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    real = io.StringIO()
    monkeypatch.setattr(sys, "stdout", real)
    prompt = Prompt()
    redirection = contextlib.redirect_stdout(io.StringIO())
    redirection.__enter__()
    with routed(prompt):
        leave: Any = redirection.__exit__
        on_a_thread(lambda: leave(None, None, None))
        catch_streams()
        print("at the prompt")
    assert prompt.text == "at the prompt\n"
    assert sys.stdout is real
    assert real.getvalue() == ""


def test_a_stream_set_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    new = io.StringIO()
    with another_at_a_prompt(Prompt()):
        sys.stdout = new
        with routed(Prompt()):
            print("at the second prompt")
        print("new")
    assert sys.stdout is new
    assert new.getvalue() == "new\n"


def test_a_statement_does_not_lose_a_redirection(rank: FakeRank, monkeypatch: pytest.MonkeyPatch) -> None:
    real, own = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", real)
    running, go_on = threading.Event(), threading.Event()

    def stops() -> None:
        started, go = running, go_on  # noqa: F841
        breakpoint()

    rank.start(stops)
    rank.stopped()
    redirection = contextlib.redirect_stdout(own)
    redirection.__enter__()
    rank.send("started.set(); go.wait(10); print('at the prompt')")
    assert running.wait(10)
    print("mine")
    redirection.__exit__(None, None, None)
    go_on.set()
    assert "at the prompt\n" in rank.stopped()["text"]
    rank.end()
    assert sys.stdout is real
    assert (real.getvalue(), own.getvalue()) == ("", "mine\n")


def test_each_thread_shows_its_own_values() -> None:
    before = sys.displayhook
    here: list[Any] = []
    there: list[Any] = []
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with displayed(there.append):
            entered.set()
            leave.wait(10)
            exec(compile("2", "<test>", "single"))

    thread = threading.Thread(target=work)
    with displayed(here.append):
        thread.start()
        assert entered.wait(10)
        exec(compile("1", "<test>", "single"))
    leave.set()  # the first to come is the first to go
    thread.join(10)
    assert (here, there) == ([1], [2])
    assert sys.displayhook is before


class Interrupted(queue.SimpleQueue[Any]):
    """Ctrl-C comes as the first item has been taken."""

    come = False

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        item = super().get(block, timeout)
        if not self.come:
            self.come = True
            raise KeyboardInterrupt
        return item


def test_a_prompt_that_is_to_end_does_so_although_ctrl_c_comes_at_that_moment() -> None:
    console = Console(lambda _text, _prompt: None, lambda _text: None)
    console._lines = Interrupted()
    console.release(closing=True)
    with pytest.raises(KeyboardInterrupt):
        console.readline()
    with pytest.raises(Released) as released:
        console.readline()
    assert released.value.closing


def test_a_prompt_that_is_to_end_twice_ends_once() -> None:
    console = Console(lambda _text, _prompt: None, lambda _text: None)
    for closing in (True, False):
        console.release(closing=closing)
    with pytest.raises(Released) as released:
        console.readline()
    assert released.value.closing and console.released
    console.rearm()
    console.feed("n")
    assert console.readline() == "n\n" and not console.released
