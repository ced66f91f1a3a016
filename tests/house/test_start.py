"""The import is timed in interpreters of their own. How long it takes is no matter of a test."""

from __future__ import annotations

from tests.house.start import import_milliseconds


def test_an_import_takes_time() -> None:
    assert import_milliseconds(rounds=1) > 0
