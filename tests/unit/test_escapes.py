"""What text of others may do to a terminal: nothing but colours, which end with their line."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshrt.escapes import coloured, escaped, escaped_line, latest_state

#: By what they do. Each would reach beyond its line, or change how text is read.
ACTS = {
    "cursor up": "\x1b[3A",
    "cursor to a place": "\x1b[1;1H",
    "erase": "\x1b[2J",
    "erase the line": "\x1b[2K",
    "title": "\x1b]0;title\x07",
    "link": "\x1b]8;;http://x\x1b\\",
    "clipboard": "\x1b]52;c;eA==\x07",
    "device control": "\x1bPq\x1b\\",
    "reset": "\x1bc",
    "other screen": "\x1b[?1049h",
    "C1 sequence": "\x9b2J",
    "C1 title": "\x9d0;t\x9c",
    "carriage return": "\r",
    "back": "\x08",
    "bell": "\x07",
    "next line": "\x85",
    "line separator": "\u2028",
    "form feed": "\x0c",
    "direction": "\u202e",
    "isolate": "\u2067",
    "character set": "\x1b(0",
    "half a colour": "\x1b[31",
    "a long colour": f"\x1b[{'1;' * 40}m",
    "a query": "\x1b[6n",
}
controls = st.sampled_from(
    [*ACTS.values(), "\x1b[31m", "\x1b[0m", "\x1b[m", "\x1b[1;4m", "\n", "\x1b", "[", "m", "\t", "é"]
)
texts = st.lists(controls | st.text(max_size=4), max_size=12).map("".join)
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
#: Written down once more, for the tests.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]",
)


@pytest.mark.parametrize("text", ACTS.values(), ids=ACTS)
def test_what_acts_on_a_terminal_is_shown(text: str) -> None:
    for shown in (escaped(f"a{text}b"), escaped_line(f"a{text}b"), coloured(f"a{text}b")):
        assert shown.isprintable() and shown.startswith("a\\") and shown.endswith("b")


def test_colours_pass_and_end_with_their_line() -> None:
    assert coloured("\x1b[31mred\x1b[0m\nplain\n") == "\x1b[31mred\x1b[0m\nplain\n"
    assert coloured("\x1b[31mred\x1b[m\n") == "\x1b[31mred\x1b[m\n"
    assert (
        coloured("\x1b[31mred\n\x1b[1;38;5;8mx\x1b[7my\nz") == "\x1b[31mred\x1b[0m\n\x1b[1;38;5;8mx\x1b[7my\x1b[0m\nz"
    )
    assert coloured("\x1b[38:2::1:2:3mend") == "\x1b[38:2::1:2:3mend\x1b[0m"
    assert escaped("\x1b[31mred\x1b[0m") == "\\e[31mred\\e[0m"


def test_text_stays_as_it_is() -> None:
    text = "tab\t, é, 漢字, 🎉, a\u0301 and \u00a0\n" * 3
    assert coloured(text) == escaped(text) == text
    assert escaped_line("a\nb\tc") == "a\\nb\\tc" and escaped("dos\r\n") == "dos\n"


@given(texts)
@example("\x1b[31m\x1b[")
def test_nothing_but_colours_is_left_and_none_at_the_end_of_a_line(text: str) -> None:
    shown = coloured(text)
    assert shown.count("\n") == text.count("\n")
    for line in shown.split("\n"):
        assert not CONTROL.search(COLOUR.sub("", line))
        colours = COLOUR.findall(line)
        assert not colours or colours[-1] in ("\x1b[0m", "\x1b[m")
    assert coloured(shown) == shown and escaped(escaped(text)) == escaped(text)


@given(st.lists(texts, max_size=5))
def test_lines_do_not_depend_on_each_other(lines: list[str]) -> None:
    whole = [line.replace("\n", "") for line in lines]
    assert coloured("\n".join(whole)) == "\n".join(map(coloured, whole))


@given(texts)
def test_the_latest_state_of_a_line_is_a_part_of_it(text: str) -> None:
    state = latest_state(text)
    assert state in text and ("\r" not in state) and (state == text or "\r" in text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["\x1b", "\x1b[", "\x1b[1", "\x1b[1;", "\x1b[31m", "\x1b[A", "\r", "\r\x1b[K", "m\x1b[31"]
)
def test_work_is_linear_in_the_length_of_a_text(unit: str) -> None:
    """Work that grows with the square of 400,000 characters would not end within the time limit of a test."""
    text = unit * (400_000 // len(unit))
    assert coloured(text) and escaped(text) and latest_state(text) is not None
