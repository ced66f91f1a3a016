"""The program's terminal: whole lines from one thread; a slow or broken one stops nobody."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path

import pytest

from meshrt.mesh import terminal as terminal_module
from meshrt.mesh.folding import RankLines
from meshrt.mesh.shown import parse_shown
from meshrt.mesh.terminal import Terminal
from tests.support.screen import Screen


class Stuck(Screen):
    """A terminal that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.asked = threading.Event()

    def write(self, text: str, /) -> int:
        self.asked.set()
        self.released.wait(20)
        return super().write(text)


def test_lines_go_to_the_stream_they_are_for_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    terminal = Terminal()
    for index in range(100):
        terminal.write(f"line {index}\n", err=index % 10 == 9)
    terminal.close()
    assert out.text == "".join(f"line {index}\n" for index in range(100) if index % 10 != 9)
    assert err.text == "".join(f"line {index}\n" for index in range(100) if index % 10 == 9)


def test_what_ranks_print_does_not_act_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    terminal = Terminal()
    terminal.write("[a] \x1b[31mred\n[b] \x1b[2J\x1b]0;title\x07gone\r[c] x\n", err=False)
    terminal.close()
    assert out.text == "[a] \x1b[31mred\x1b[0m\n[b] \\e[2J\\e]0;title\\x07gone\\r[c] x\n"


def test_a_stuck_terminal_stops_nobody_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_module, "_LIMIT", 1000)
    out = Stuck.instead_of("stdout", monkeypatch)
    assert isinstance(out, Stuck)
    terminal = Terminal()
    terminal.write("first\n", err=False)
    assert out.asked.wait(20)
    for index in range(500):
        terminal.write(f"line {index:03}\n", err=False)
    out.released.set()
    terminal.flush(20)
    terminal.close()
    lines = out.text.splitlines()
    kept = [line for line in lines if line.startswith("line")]
    assert lines[0] == "first" and kept == [f"line {index:03}" for index in range(len(kept))]
    assert lines[-1] == f"meshrt: {500 - len(kept)} lines left out here: see the files in the run directory"


def of_rank(rank: int, *lines: str, setting: str = "on", wait: float = 3600.0, mesh: str = "m") -> RankLines:
    labelled, shown = [("a", line) for line in lines], parse_shown(setting, "")
    return RankLines(mesh, rank, False, labelled, f"n={rank}", shown, "", time.monotonic(), True, wait)


def test_equal_lines_of_ranks_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    terminal = Terminal()
    for rank in range(3):
        terminal.lines(of_rank(rank, "same", f"own {rank}"))
    assert out.text == ""
    terminal.flush(20)
    assert out.text == "[a 0-2] same\n[a n=0] own 0\n[a n=1] own 1\n[a n=2] own 2\n"
    terminal.lines(of_rank(0, "alone", wait=0.0))
    out.wait_for("[a n=0] alone\n")
    terminal.lines(of_rank(1, "a while", wait=0.01))
    out.wait_for("[a n=1] a while\n")
    terminal.lines(of_rank(1, "the last"))
    terminal.close()
    assert out.text.endswith("[a n=1] the last\n")


def test_each_mesh_waits_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    terminal = Terminal()
    terminal.lines(of_rank(0, "same"))
    terminal.lines(of_rank(0, "of another mesh", wait=0.0, mesh="other"))
    out.wait_for("[a n=0] of another mesh\n")
    terminal.lines(of_rank(1, "same"))
    terminal.lines(of_rank(0, "a setting has changed", wait=0.0))
    out.wait_for("changed\n")
    assert out.text == "[a n=0] of another mesh\n[a 0-1] same\n[a n=0] a setting has changed\n"
    terminal.close()


def test_lines_do_not_wait_when_much_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_module, "_LIMIT", 10_000)
    out = Screen.instead_of("stdout", monkeypatch)
    terminal = Terminal()
    for number in range(50):
        terminal.lines(of_rank(0, f"line {number}"))
    out.wait_for("[a n=0] line 40\n")
    terminal.close()


def test_lines_do_not_wait_when_something_else_is_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    monkeypatch.setattr(sys, "stderr", out)
    terminal = Terminal()
    terminal.lines(of_rank(0, "printed before"))
    terminal.announce("rank 0 has stopped")
    out.wait_for("stopped\n")
    assert out.text == "[a n=0] printed before\nmeshrt: rank 0 has stopped\n" and not err.text
    terminal.close()


def test_what_a_limit_leaves_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    terminal = Terminal("meshrt logs 1234")
    terminal.lines(of_rank(0, *map(str, range(100)), setting="limit=3", wait=0.0))
    err.wait_for("meshrt: ... 97 lines left out; they are in the files (meshrt logs 1234)\n")
    terminal.lines(of_rank(0, *map(str, range(100, 105)), setting="limit=3", wait=0.0))
    terminal.close()
    assert out.text.split("\n") == [*(f"[a n=0] {number}" for number in (0, 1, 2, 100, 101, 102)), ""]
    assert "meshrt: ... 2 lines left out" in err.text


def test_a_line_of_the_scripts_is_not_cut_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still in the stream is not on the screen: the line of ours goes in front of it."""
    path = tmp_path / "screen"
    with path.open("w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        terminal = Terminal()
        stream.write("first\n")
        stream.write("step 3 ")
        terminal.write("meshrt: notice\n", err=True)
        terminal.flush(20)
        stream.write("is done\n")
        terminal.close()
    assert path.read_text() == "first\nmeshrt: notice\nstep 3 is done\n"


def test_a_closed_terminal_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    terminal = Terminal()
    terminal.write("nowhere\n", err=False)
    terminal.close()
    monkeypatch.setattr(sys, "stdout", None)
    terminal = Terminal()
    terminal.write("nowhere\n", err=False)
    terminal.close()
