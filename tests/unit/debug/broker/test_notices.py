"""What people are told without asking: what becomes of a wave, whatever its ranks say and whoever is there."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from meshrt.debug.operations import Notice
from meshrt.errors import ProtocolError
from meshrt.hooks.operations import Report
from tests.unit.debug.root_fakes import FakeRoot


@pytest.fixture
def root() -> FakeRoot:
    return FakeRoot()


def test_many_errors_of_one_condition_are_one_line(root: FakeRoot) -> None:
    me = root.terminal()
    for rank in range(8):
        root.stop(rank, breakpoint=3, error=f"KeyError: {rank // 3}{'x' * 200_000}")
    root.advance(1)
    told = f"8 ranks of debugee stopped at actors.py:16 (work) by breakpoint 3 (3 (0-2): KeyError: 0{'x' * 189}..."
    assert me.of("debug.notice")[-1]["text"] == f"{told}; 5 others differ)"
    assert root.said == [f"{told}; 5 others differ)"]
    root.event("resumed", *range(8), how="continue")
    root.stop(4, breakpoint=3)
    root.stop(5, breakpoint=3, error="KeyError: 5")
    root.advance(1)
    assert root.said[1] == (
        "2 ranks of debugee (4-5) stopped at actors.py:16 (work) by breakpoint 3 (rank 5: KeyError: 5)"
    )


def test_a_notice_always_fits_into_a_message(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal()
    root.stop(0, place=["/src/actors.py", 16, "f" * 2_000_000])
    root.kill(1, "x" * 2_000_000)
    root.unhandled[0]("m1", 3, "y" * 2_000_000)
    root.advance(1)
    root.ask(other, "debug.continue", typed="z" * 2_000_000)
    texts = [body["text"] for body in me.of("debug.notice")]
    assert len(texts) == 4 and all(200_000 <= len(text) < 200_100 for text in texts)


def test_a_notice_that_cannot_be_sent_changes_nothing_else(root: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.broker.autoentry._at_terminal", lambda: True)
    root.waits = True
    program = root.terminal(person=False, listens=True)

    def refuse(report: Report) -> None:
        if isinstance(report, Notice):
            raise ProtocolError("too long")

    monkeypatch.setattr(program, "report", refuse)
    root.stop(0)
    root.kill(1, "was killed by SIGKILL")
    with pytest.raises(ProtocolError):
        root.advance(1)
    assert len(root.interjected) == 1
    root.advance(40)
    assert [text.partition(",")[0] for text in root.said] == [
        "reminder: rank 0 of debugee stopped at actors.py:16 (work)"
    ]


def test_a_program_that_listens_is_nobody_who_could_help(root: FakeRoot) -> None:
    program = root.terminal(person=False, listens=True)
    root.stop(0)
    root.advance(40)
    line = "rank 0 of debugee stopped at actors.py:16 (work)"
    assert [body["text"] for body in program.of("debug.notice")] == [line]
    assert root.said[0] == f"{line}; python -m meshrt.debug" and root.said[1].startswith(f"reminder: {line}, for ")
    root.terminal()
    root.stop(1)
    root.advance(1000)
    assert root.said[2:] == ["rank 1 of debugee stopped at actors.py:16 (work)"]


@pytest.mark.parametrize("problem", [ImportError, KeyboardInterrupt])
def test_a_debugger_that_cannot_be_loaded_is_tried_again(
    root: FakeRoot, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    monkeypatch.setattr("meshrt.debug.broker.autoentry._at_terminal", lambda: True)
    opened: list[Any] = []
    asked: list[str] = []

    class Entry(ModuleType):
        @property
        def enter_here(self) -> Callable[[Any], None]:
            asked.append("enter_here")
            if len(asked) == 1:
                raise problem
            return opened.append

    monkeypatch.setitem(sys.modules, "meshrt.debug.prompt.entry", Entry("entry"))
    root.waits = True
    waited: Any = "the get()"
    for rank in range(2):
        root.stop(rank)
        root.advance(1)
        assert len(root.interjected) == rank + 1
        with contextlib.suppress(KeyboardInterrupt):  # the script's own
            root.interjected[rank](waited)
    assert opened == [waited]
    assert any("could not be opened here: ImportError" in text for text in root.said) is (problem is ImportError)
