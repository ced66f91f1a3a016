"""Where a breakpoint is put for a line of a file."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

import pytest

from meshrt.debug.rank.codelines import NoCodeError, find
from meshrt.program.places import names_file

TEXT = '''\
import os

LIMIT = 3

@staticmethod
def first(
    a=1,
):
    """Text."""

    b = a

    def inner():
        return b

    c = [
        x
        for x in range(3)
    ]
    return inner, c


class Thing:
    size = 5

    def method(self):
        return self.size


short = lambda: 5
# the end
'''


def code() -> CodeType:
    return compile(TEXT, "thing.py", "exec")


@pytest.mark.parametrize(
    ("line", "found", "name"),
    [
        (5, 11, "first"),
        (6, 11, "first"),
        (9, 11, "first"),
        (10, 11, "first"),
        (11, 11, "first"),
        (12, 13, "first"),
        (13, 13, "first"),
        (14, 14, "first.<locals>.inner"),
        (15, 16, "first"),
        (20, 20, "first"),
        (26, 27, "Thing.method"),
        (27, 27, "Thing.method"),
        (30, 30, "<lambda>"),
    ],
)
def test_code_that_is_loaded(line: int, found: int, name: str) -> None:
    target = find([code()], line, ran=True)
    assert (target.line, target.name) == (found, name)


@pytest.mark.parametrize(("line", "found", "name"), [(3, 3, "<module>"), (24, 24, "Thing"), (6, 11, "first")])
def test_code_that_is_about_to_run(line: int, found: int, name: str) -> None:
    target = find([code()], line, ran=False)
    assert (target.line, target.name) == (found, name)


def test_a_comprehension_belongs_to_its_function() -> None:
    for line in (17, 18):
        target = find([code()], line, ran=True)
        assert (target.line, target.name) == (line, "first") or target.name.endswith("<listcomp>")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (3, "line 3 is outside all functions and has already run"),
        (31, "no code at line 31 or after it; the last line with code is 30"),
        (4, "line 4 has no code and is in no function: first begins at line 5"),
        (21, "in no function: first ends at line 20, Thing.method begins at line 26"),
        (28, "in no function: Thing.method ends at line 27, <lambda> begins at line 30"),
    ],
)
def test_no_such_line(line: int, text: str) -> None:
    with pytest.raises(NoCodeError, match=text):
        find([code()], line, ran=True)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (4, "in no function: the next code is at line 5"),
        (21, "first ends at line 20, the next code is at line 23"),
        (25, "in no function: the next code is at line 26"),
    ],
)
def test_no_such_line_in_code_that_is_about_to_run(line: int, text: str) -> None:
    with pytest.raises(NoCodeError, match=text):
        find([code()], line, ran=False)


def test_a_blank_line_among_a_modules_own_is_the_next_one_that_runs() -> None:
    assert find([code()], 2, ran=False).line == 3


def test_one_function_alone() -> None:
    first = next(const for const in code().co_consts if isinstance(const, CodeType))
    assert find([first], 9, ran=True).line == 11
    assert find([first], 14, ran=True).name == "first.<locals>.inner"


@pytest.mark.parametrize(
    ("filename", "wanted", "fits"),
    [
        ("/home/me/pkg/train.py", "train.py", True),
        ("/home/me/pkg/train.py", "pkg/train.py", True),
        ("/home/me/pkg/train.py", "./pkg/train.py", True),
        ("/home/me/pkg/train.py", "/home/me/pkg/train.py", True),
        ("/home/me/pkg/retrain.py", "train.py", False),
        ("/home/me/pkg/train.py", "other/train.py", False),
        ("<stdin>-3", "<stdin>-3", True),
        ("/home/u/app/train.py", "/app/train.py", False),
        ("/home/u/app/train.py", "/home/u/lib/../app/train.py", True),
        ("train.py", "train.py", True),
    ],
)
def test_files_are_matched_by_their_last_parts(filename: str, wanted: str, fits: bool) -> None:
    assert names_file(wanted, filename) is fits


def test_a_whole_path_may_lead_over_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert names_file(str(tmp_path / "link" / "train.py"), str(tmp_path / "real" / "train.py"))
    assert not names_file(str(tmp_path / "link" / "train.py"), str(tmp_path / "other" / "train.py"))
