"""Which parts of a text have which colour, and where there are colours at all."""

from __future__ import annotations

import io
import re
from typing import IO, cast

import pytest

from meshrt.show.colours import painted, prompt_painted, wants_colours

RESET = "\x1b[0m"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def colours(text: str) -> list[str]:
    """Return what is coloured."""
    if painted(text) == text:
        return []
    return [part.partition("\x1b[")[2].partition("m")[2] for part in painted(text).split(RESET)[:-1]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*** NameError: name 'x' is not defined\n", ["NameError"]),
        ("[0-3] *** NameError: x\n", ["[0-3] *** NameError: x"]),
        ("> /a/b.py(16)step()\n-> loss = f()\n", ["> /a/b.py(16)step()", "-> loss = f()"]),
        ("[0-3,7] 42\n[8] x[1]\n", ["[0-3,7]", "[8]"]),
        ("[0-18:2] 42\n[trainer 1-19:2,40]\n", ["[0-18:2]", "[trainer 1-19:2,40]"]),
        (
            "meshrt: FAILED 3 of 16 ranks\nCONSEQUENCES OF THE ROOT CAUSE  2 ranks\n",
            ["meshrt: FAILED 3", "CONSEQUENCES OF THE ROOT CAUSE"],
        ),
        ("  1/16  13  load  a.py:36    blocked < 1 s in self.lock.acquire\n", ["blocked < 1 s"]),
        ("all  to_debug  a.py:16    stopped in the debugger\n", ["stopped in the debugger"]),
        ("  likely culprits: 13 (at another place than the others)\n", ["  likely culprits: 13 (at another"]),
        ("rank 3 was killed by SIGKILL; rank 4 is not-answering\n", ["killed by SIGKILL", "not-answering"]),
        ("recv  a.py:77    blocked 43 s - 49 s in recv\n", ["blocked 43 s - 49 s"]),
        ("ROOT CAUSE  rank 3\n  what  ValueError\n", ["ROOT CAUSE  rank 3"]),
        ("*** of a program that has \x1b[32mcolours\x1b[0m\n", []),
        ("plain text, a list [0] and an arrow -> here\n", []),
    ],
)
def test_what_a_person_looks_for_stands_out(text: str, found: list[str]) -> None:
    shown = colours(text)
    assert len(shown) == len(found) and all(part in seen for part, seen in zip(found, shown, strict=True))


def test_the_text_stays_as_it_is() -> None:
    text = "*** error\n> a.py(1)f()\n[0] 1\n"
    plain = painted(text)
    for code in ("\x1b[31m", "\x1b[36m", RESET):
        assert code in plain
        plain = plain.replace(code, "")
    assert plain == text


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "if x is not None:  # if 'so'",
            [("34", "if"), ("34", "is"), ("34", "not"), ("34", "None"), ("90", "# if 'so'")],
        ),
        ("say('it\\'s', rb\"#\", notin)", [("32", "'it\\'s'"), ("32", 'rb"#"')]),
        ('f("", """a "b" c""", d)', [("32", '""'), ("32", '"""a "b" c"""')]),
        ('return """begins for', [("34", "return"), ("32", '"""begins for')]),
        ("x = 'open \\", [("32", "'open \\")]),
        ("forest = iffy.in_, NONE", []),
    ],
)
@pytest.mark.parametrize("before", ["-> ", " 16  \t", " 16 B->\t", "1016 >>\t"])
def test_a_line_of_source_has_colours_as_in_pdb_of_python_3_14(
    before: str, line: str, found: list[tuple[str, str]]
) -> None:
    shown = painted(f"{before}{line}\nif True: # behind\n")
    first, _, behind = shown.partition("\n")
    assert re.findall(r"\x1b\[(3[24]|90)m(.*?)\x1b\[39m", first) == found
    assert re.sub(r"\x1b\[\d*m", "", first) == before + line and behind == "if True: # behind\n"
    assert first.startswith("\x1b[1m") is (before == "-> ") and first.endswith(RESET)


def test_empty_lines_before_a_coloured_one_are_no_part_of_it() -> None:
    # A pattern that takes them in would look at them again and again.
    assert painted("\n \n  likely culprits: 3\n").startswith("\n \n\x1b[1m\x1b[31m  likely")


def test_a_prompt_has_its_blank_behind_the_colour() -> None:
    assert prompt_painted("meshrt_dbg> ").endswith(f"meshrt_dbg>{RESET} ")
    assert prompt_painted("") == ""


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_user_may_want_none(settings: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **settings}.items():
        monkeypatch.setenv(name, value)
    assert wants_colours(Screen()) is wanted
    assert not wants_colours(io.StringIO())


def test_a_stream_that_is_closed_or_missing_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    closed = io.StringIO()
    closed.close()
    assert not wants_colours(closed)
    assert not wants_colours(cast(IO[str], None))
