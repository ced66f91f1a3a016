"""A person at the debugger, played by a test: the real prompt and the real connection, with a terminal that records."""

from __future__ import annotations

import queue
import re
from collections.abc import Iterator
from contextlib import contextmanager

from meshrt.debug.prompt.client import Client
from meshrt.debug.prompt.repl import Repl
from meshrt.hooks.facts import Body
from meshrt.transport import tools
from tests.support.untyped import asked
from tests.support.waiting import holds_within, wait_until

__all__ = ["Person", "person", "stops_in"]


def stops_in(text: str, actor: str) -> int:
    """Return of how many ranks of ``actor`` notices in ``text`` say that they are stopped."""
    said = re.compile(rf"(?:rank \d+|(\d+) ranks) of {re.escape(actor)} (?:\(.*?\) )?stopped")
    return sum(int(number or 1) for number in said.findall(text))


class Recorder:
    """A terminal of a test."""

    interactive = True

    def __init__(self) -> None:
        self.shown = ""
        self.notices: list[str] = []
        #: How often what was typed ahead was dropped.
        self.forgotten = 0
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read(self, prompt: str) -> str:
        self.write(prompt)
        return self.answers.get(timeout=10)

    def write(self, text: str) -> None:
        self.shown += text

    page = write

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def wake(self) -> None:
        pass

    def forget_typed(self) -> bool:
        self.forgotten += 1
        return False

    def close(self) -> None:
        pass


class Person:
    """Types lines, and reads what comes."""

    def __init__(self, program: tools.Program) -> None:
        self.terminal = Recorder()
        self.client = Client(lambda on_event, on_close: tools.connect(program, on_event, on_close), person=True)
        self.client.greet()
        self.repl = Repl(self.client, self.terminal)
        self.ok = True

    @property
    def prompt(self) -> str:
        """The prompt that would be shown now."""
        attached = self.repl._attached
        if attached is not None:
            attached.drain()
            self.repl._mind_attached()
        return self.repl._attached.prompt if self.repl._attached else "meshrt_dbg> "

    def __call__(self, line: str) -> str:
        """Type ``line``; return what is shown for it."""
        self.terminal.shown = ""
        self.ok = self.repl.execute(line)
        return self.terminal.shown

    def until(self, line: str, *texts: str) -> str:
        """Repeat a line that only looks until all of ``texts`` are in what it shows; return that."""
        found = holds_within(20, lambda: all(text in self(line) for text in texts))
        assert found, f"{line}: {texts} not in {self.terminal.shown}"
        return self.terminal.shown

    def wait(self, actor: str, ranks: str = "", seconds: float = 20) -> None:
        """Wait until these ranks are stopped."""
        shown = self(f"wait {actor} {ranks} {seconds}")
        assert self.ok, shown

    def rows(self) -> list[Body]:
        """What stands, as data."""
        return list(self.client.ask(asked("inspect.list"))["rows"])

    def heard(self, text: str) -> None:
        """Wait for a notice with ``text`` in it."""
        wait_until(lambda: any(text in notice for notice in self.terminal.notices), 10, f"no notice {text!r}")

    def announced(self, actor: str, count: int) -> None:
        """Wait until notices have said of ``count`` ranks of ``actor`` that they are stopped.

        A loaded machine splits a wave of stops in several, and the last may come long after `wait` has returned.
        """
        wait_until(
            lambda: stops_in("\n".join(self.terminal.notices), actor) >= count,
            20,
            f"stops of {count} ranks of {actor} were not announced",
        )

    def close(self) -> None:
        self.client.mute()
        self.client.close()


@contextmanager
def person() -> Iterator[Person]:
    """A person at a terminal of this very program."""
    wait_until(lambda: tools.own_program() is not None, 20)
    program = tools.own_program()
    assert program is not None
    someone = Person(program)
    try:
        yield someone
    finally:
        someone.close()


@contextmanager
def attached(actor: str, rank: int) -> Iterator[Person]:
    """A person at the prompt of a rank; all ranks of its actor are stopped."""
    with person() as me:
        me.wait(actor)
        me(f"attach {actor} {rank}")
        assert me.ok, me.terminal.shown
        yield me
