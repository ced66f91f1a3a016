"""Values in passing: in full while they are short, else their beginning with type and size."""

from __future__ import annotations

import numpy
import pytest

from meshrt.debug.dap.shown import briefly, cut

LONG = "x" * 2000
HEAD = "x" * 1000


class Wordy:
    """Its length would be told by code of the user's."""

    def __len__(self) -> int:
        raise AssertionError("asked")


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        (5, "5", "5"),
        ("a\nb", r"'a\nb'", r"'a\nb'"),
        ([1] * 60, "[1, ...]", "[1, ...]"),
        (dict.fromkeys(range(61)), "{0: None, ...}", "{0: None, ...}  (dict of 61)"),
        ("x" * 61, "short", "short"),
        ("x" * 4000, LONG, f"{HEAD} ...  (str of 4000)"),
        (Wordy(), LONG, f"{HEAD} ...  (Wordy)"),
    ],
)
def test_values(value: object, text: str, shown: str) -> None:
    assert briefly(value, text) == shown


def test_texts() -> None:
    assert cut(HEAD) == HEAD and cut(LONG) == f"{HEAD} ...  (2000 characters)"


def test_arrays() -> None:
    assert briefly(numpy.zeros((1000, 1000)), "array(...)").startswith("ndarray 1000x1000 float64, min 0")
