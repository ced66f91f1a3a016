"""The examples and errors in docs/grammar.md are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshrt.errors import SelectionError
from meshrt.selection import STATE_WORDS, Shape, fold_ranks, parse, resolve

__all__: list[str] = []

MESH = Shape.from_extent({"hosts": 2, "gpus": 4})
TEXT = (Path(__file__).parents[3] / "docs" / "grammar.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| .* \| ([0-9,:-]+) \|$", TEXT, re.MULTILINE)
RUNNING = re.findall(r"^\| `(ranks\([^`]+)` \| [^|]* \|$", TEXT, re.MULTILINE)
ERRORS = re.findall(r"^```\n(.+?\n  (.+?)\n.*?)\n```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_examples_were_found() -> None:
    assert len(ROWS) >= 16
    assert len(RUNNING) == 4
    assert len(ERRORS) == 3


@pytest.mark.parametrize(("text", "ranks"), ROWS)
def test_example(text: str, ranks: str) -> None:
    assert fold_ranks(resolve(parse(text.replace("\\|", "|")), MESH)) == ranks


@pytest.mark.parametrize("text", RUNNING)
def test_running_example(text: str) -> None:
    with pytest.raises(SelectionError, match="only a running mesh has this information"):
        resolve(parse(text), MESH)


@pytest.mark.parametrize(("shown", "text"), ERRORS)
def test_error(shown: str, text: str) -> None:
    with pytest.raises(SelectionError) as caught:
        resolve(parse(text), MESH)
    assert str(caught.value) == shown


def test_all_state_words_are_there() -> None:
    assert all(f"`{word}`" in TEXT and f'"{word}"' in TEXT for word in STATE_WORDS)
