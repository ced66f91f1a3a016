"""The pictures in docs/ show what the tools show."""

from __future__ import annotations

import re

import pytest

from tests.support.programs import ROOT, project

pytest.importorskip("rich", reason="rich is not installed (pip install --group top)")
pytest.importorskip("pyte", reason="pyte is not installed (pip install --group test)")

from rich.text import Text

from tests.pictures import editor, terminal
from tests.pictures.badges import badges
from tests.pictures.drawing import animated, words
from tests.pictures.sessions import SESSIONS

#: Numbers of programs and processes, and times, which differ between two runs.
_NUMBERS = re.compile(r"(?<=postmortem)[0-9a-f]{8}|<?\d+(?:\.\d+)?")
#: What is said only if it took long: on a busy machine.
_LONG = re.compile(r",for0s(?=whowaits|the|$)"), re.compile(r"0m?saftertheroot")


def test_the_picture_in_readme_shows_what_its_text_says() -> None:
    drawn = words(editor.drawn((ROOT / "README.md").read_text("utf-8")))
    assert "ValueMesh[float]" in drawn
    assert drawn == words(editor.PICTURE.read_text("utf-8")), "python -m tests.pictures writes it"


def test_the_badges_in_readme_say_what_the_project_says() -> None:
    made = badges(project())
    assert "3.11 | 3.12" in made["badge-python.svg"] and project()["license"] in made["badge-licence.svg"]
    written = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").glob("badge-*.svg")}
    assert written == made, "python -m tests.pictures badges writes them"
    line = (ROOT / "README.md").read_text("utf-8").splitlines()[2]
    assert re.findall(r"!\[[^]]+\]\(docs/([^)]+)\)", line) == list(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SESSIONS.keys() - {"top"}))  # what `top` shows changes with each second
def test_a_picture_shows_what_a_session_does(name: str) -> None:
    if reason := terminal.why_not():
        pytest.skip(reason)
    drawn, known = (
        _plain(words(svg.rpartition('<g class="frame')[2]))  # of frames, the last one
        for svg in (SESSIONS[name](), (ROOT / "docs" / f"{name}.svg").read_text("utf-8"))
    )
    assert drawn == known, f"python -m tests.pictures {name} writes it"


def _plain(text: str) -> str:
    waited, later = _LONG
    return later.sub("then", waited.sub("", _NUMBERS.sub("0", text)))


@pytest.mark.slow
def test_the_picture_of_top_has_the_columns_that_there_are() -> None:
    if reason := terminal.why_not():
        pytest.skip(reason)
    for svg in (SESSIONS["top"](), (ROOT / "docs" / "top.svg").read_text("utf-8")):
        assert "RANKCOORDSPIDSTATECPU%RSSGROWTHCALLS/SQUEUERUNSNOTE" in words(svg), "python -m tests.pictures top"


def test_frames_follow_each_other_and_have_one_height() -> None:
    svg = animated([(1, [Text("one")]), (3, [Text("one"), Text("two")])], "title", 20, "moves")
    assert "animation: 4s" in svg and "25.000% { visibility: visible; } 100.000%" in svg
    heights = re.findall(r'viewBox="0 0 \S+ (\S+)"', svg)
    assert len(heights) == 3 and len(set(heights)) == 1
    assert words(svg) == "titleonetitleonetwo"
