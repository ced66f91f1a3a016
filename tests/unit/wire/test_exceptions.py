"""Exceptions as they are sent: rebuilt without their ``__init__``, with their arguments and attributes."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from meshrt.wire.exceptions import sendable


class BatchError(ValueError):
    def __init__(self, step: int, why: str) -> None:
        super().__init__(f"{why} at {step}")
        self.step = step


class KeywordError(KeyError):
    def __init__(self, *, key: str) -> None:
        super().__init__(key)
        self.key = key


class StateError(BatchError):
    """Has attributes that are set in its own way."""

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        self.__dict__.update(state or {}, restored=True)


class ReducedError(Exception):
    """Says itself how it is rebuilt."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)
        self.second = second

    def __reduce__(self) -> tuple[Any, ...]:
        return ReducedError, (self.args[0], self.second)


class PlainError(Exception):
    pass


class NewError(Exception):
    """Takes arguments where it is made."""

    made = 0

    def __new__(cls, number: int) -> NewError:
        error = super().__new__(cls, number)
        error.made = number
        return error


def sent(error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(sendable(error)))


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (BatchError(7, "bad"), {"step": 7}),
        (KeywordError(key="lr"), {"key": "lr"}),
        (StateError(7, "bad"), {"step": 7, "restored": True}),
        (ReducedError(1, 2), {"second": 2}),
        (PlainError("x", 1), {}),
        (NewError(3), {"made": 3}),
        (OSError(2, "No such file", "/x"), {"errno": 2, "filename": "/x"}),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), {"start": 0, "reason": "invalid"}),
        (ImportError("no x", name="x"), {"name": "x"}),
    ],
)
def test_it_is_the_same_again(error: BaseException, facts: dict[str, object]) -> None:
    again = sent(error)
    assert type(again) is type(error) and (again.args, str(again)) == (error.args, str(error))
    assert {name: getattr(again, name) for name in facts} == facts


def test_notes_come_along() -> None:
    error = BatchError(7, "bad")
    error.add_note("in the first epoch")
    assert sent(error).__notes__ == ["in the first epoch"]


def test_an_attribute_that_cannot_be_pickled_is_an_error() -> None:
    error = BatchError(7, "bad")
    vars(error)["lock"] = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        pickle.dumps(sendable(error))
