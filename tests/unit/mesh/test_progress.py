"""The line that counts the ranks of a mesh: for whom it is, and that it waits for no terminal."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from meshrt.mesh import progress as progress_module
from meshrt.mesh.progress import JoiningHosts, Progress
from meshrt.mesh.terminal import Terminal
from tests.support.screen import Screen


class Tty(Screen):
    """A terminal that takes nothing while it is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self.asked.set()
        self.goes_on.wait(20)
        return super().write(text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    seconds = itertools.count()
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    made = Terminal()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("total", "cls", "term", "shown"),
    [
        (16, Tty, "xterm", True),
        (7, Tty, "xterm", False),
        (16, Screen, "xterm", False),
        (16, Tty, "dumb", False),
        (16, Tty, None, False),
    ],
)
def test_progress_is_for_many_ranks_on_a_terminal_that_can_erase(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, total: int, cls: type[Screen], term: str | None, shown: bool
) -> None:
    if term is None:
        monkeypatch.delenv("TERM")
    else:
        monkeypatch.setenv("TERM", term)
    err = cls.instead_of("stderr", monkeypatch)
    progress = Progress(total, terminal)
    for done in range(1, total + 1):
        progress.update(done)
        terminal.flush(20)
    assert (f"/{total} ranks started |" in err.text) is shown
    assert err.text.endswith("\r\x1b[K") is shown
    assert sys.stderr is err


def test_who_counts_does_not_wait_for_a_paused_terminal(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    err = Tty.instead_of("stderr", monkeypatch)
    assert isinstance(err, Tty)
    err.goes_on.clear()
    progress = Progress(16, terminal)
    for done in range(1, 4):
        progress.update(done)
    assert err.asked.wait(20) and not err.text
    for done in range(4, 17):
        progress.update(done)
    terminal.write("line\n", err=True)
    err.goes_on.set()
    terminal.flush(20)
    assert err.text.endswith("\r\x1b[Kline\n")


def test_hosts_that_are_waited_for_are_named_more_and_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    said: list[str] = []
    hosts = JoiningHosts(["n1", "n2"], said.append)
    for now[0] in range(40):
        hosts.look()
    assert said == [f"0 of 2 hosts have joined after {after} s; waiting for n1, n2" for after in (5, 15)]
