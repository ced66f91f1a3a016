"""What Python does with an error that nothing catches."""

from __future__ import annotations

import sys
from types import TracebackType

import pytest

from meshrt.uncaught import show_uncaught


def raised() -> ValueError:
    try:
        raise ValueError(7)
    except ValueError as error:
        return error


def test_the_hook_gets_the_error_and_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(sys, "excepthook", lambda *words: told.append(words))
    error = raised()
    show_uncaught(error)
    assert told == [(ValueError, error, error.__traceback__)] and sys.last_value is error


def test_the_status_that_a_hook_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *_: sys.exit(4))
    with pytest.raises(SystemExit, match="4"):
        show_uncaught(raised())


def test_an_error_of_the_hook_is_shown_with_the_one_that_it_was_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hook(_kind: type[BaseException], _error: BaseException, _frames: TracebackType | None) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(sys, "excepthook", hook)
    show_uncaught(raised())
    shown = capsys.readouterr().err
    assert shown.startswith("Error in sys.excepthook:\nTraceback ") and "KeyError: 'broken'\n" in shown
    assert shown.endswith("ValueError: 7\n") and shown.count("Traceback") == 2 and "show_uncaught" not in shown
    assert "Original exception was:\n" in shown and "During handling" not in shown
