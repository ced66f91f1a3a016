"""What may come next in a line: it is a word that the parser understands there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.commandline.command import Offer
from meshrt.commandline.completion import FILES, Known, candidates
from meshrt.commandline.table import COMMANDS


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("", "where"),
        ("attach ", "trainer"),
        ("attach trainer ", "13"),
        ("attach --steal trainer ", "13"),
        ("cast trainer ", "ranks("),
        ("cast trainer ranks(", "ranks(hosts="),
        ("cast trainer ranks(hosts=1,", "ranks(hosts=1,gpus="),
        ("list ", "blocked"),
        ("list dead ", "trainer"),
        ("list trainer ", "ranks("),
        ("help ", "postmortem"),
        ("postmortem ", "dump"),
        ("p --diff 3 ", "trainer"),
    ],
)
def test_completion(text: str, some: str) -> None:
    known = Known(["trainer"], ["hosts", "gpus"], {"trainer": [3, 13]})
    assert some in candidates(COMMANDS, text.split(" "), Offer.PROMPT, known)


@given(st.text(max_size=40))
def test_completion_of_anything(text: str) -> None:
    found = candidates(COMMANDS, text.split(" "), Offer.PROMPT, Known(["a"], ["n"]))
    assert all(isinstance(each, str) for each in found)


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["wh"], "where"),
        (["where", "t"], "trainer"),
        (["where", "-"], "--program"),
        (["where", "-p", ""], "7863c50c"),
        (["logs", ""], "7863c50c"),
        (["logs", ""], "trainer"),
        (["logs", "7863c50c", ""], "trainer"),
        (["top", "--sort", ""], "rank"),
        (["ps", "--ranks", ""], "hosts="),
        (["interrupt", "trainer", ""], "--ranks"),
        (["completion", ""], "fish"),
    ],
)
def test_completion_in_a_shell(words: list[str], some: str) -> None:
    known = Known(["trainer"], ["hosts"], {}, ["7863c50c"])
    assert some in candidates(COMMANDS, words, Offer.SHELL, known)


@pytest.mark.parametrize(
    ("words", "has"),
    [
        (["timeline", ""], True),
        (["memory", "--save", ""], True),
        (["dap", "--socket", ""], True),
        (["break", "trainer", ""], True),
        (["break", ""], True),
        (["run", ""], True),
        (["postmortem", ""], True),
        (["where", ""], False),
        (["list", ""], False),
        (["p", "trainer", ""], False),
        (["top", "--sort", ""], False),
    ],
)
def test_where_a_file_is_possible(words: list[str], has: bool) -> None:
    assert (FILES in candidates(COMMANDS, words, Offer.SHELL, Known(["trainer"]))) == has
    assert FILES not in candidates(COMMANDS, words, Offer.PROMPT, Known(["trainer"]))
