"""The line of ``meshrt launch``."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.errors import UsageError


def given(*words: str) -> dict[str, Any]:
    arguments = COMMANDS.parse_words(["launch", *words], Offer.SHELL).arguments
    assert arguments is not None
    return dict(arguments)


def test_options_are_in_front_of_the_script() -> None:
    found = given("--min-hosts", "2", "--timeout=1.5", "train.py", "--timeout", "3")
    assert (found["min_hosts"], found["timeout"]) == (2, 1.5)
    assert found["words"] == ["train.py", "--timeout", "3"]
    assert given("-m", "train", "-x")["words"] == ["-m", "train", "-x"]
    assert (given("train.py")["hosts"], given("train.py")["timeout"]) == (None, 300.0)


@pytest.mark.parametrize("words", [["--hosts", "0"], ["--index", "-1"], ["--timeout", "-3"], ["--min-hosts", "all"]])
def test_numbers_that_are_none(words: list[str]) -> None:
    with pytest.raises(UsageError, match="is not a valid "):
        given(*words, "train.py")
