"""Words that are numbers: what is taken, and what an error expects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.commandline.numbers import duration, number, pid, port, seconds
from meshrt.errors import UsageError


@pytest.mark.parametrize(
    ("convert", "word", "value"),
    [
        (number("rows"), "0", 0),
        (number("rows", None), "-3", -3),
        (pid, "4194304", 4194304),
        (port, "0", 0),
        (port, "65535", 65535),
        (seconds, "0", 0.0),
        (seconds, ".5", 0.5),
        (seconds, "2.", 2.0),
        (duration, "0.001", 0.001),
    ],
)
def test_a_number(convert: Callable[[str], float], word: str, value: float) -> None:
    assert convert(word) == value


@pytest.mark.parametrize(
    ("convert", "word", "why"),
    [
        (number("rows"), "-1", "'-1' is not a valid number of rows; expected 0 or more"),
        (number("rows", 1), "0", "expected 1 or more"),
        (number("rows"), "1234567890", "is not a valid number of rows"),
        (number("rows"), "٣", "'٣' is not a valid number of rows"),
        (pid, "0", "'0' is not a PID"),
        (port, "65536", "'65536' is not a valid port: a number from 0 to 65535"),
        (seconds, "-1", "'-1' is not a valid number of seconds"),
        (seconds, "nan", "is not a valid number of seconds"),
        (seconds, "99999999", "is not a valid number of seconds"),
        (duration, "0.0", "'0.0' is not a valid number of seconds above 0"),
        (duration, "soon", "'soon' is not a valid number of seconds above 0"),
    ],
)
def test_what_is_refused(convert: Callable[[str], float], word: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        convert(word)
    assert why in str(refused.value)


@given(st.text(max_size=12))
def test_any_word_is_a_number_or_refused(word: str) -> None:
    for convert in (number("rows"), pid, port, seconds, duration):
        with contextlib.suppress(UsageError):
            assert 0 <= convert(word) < 1e9
