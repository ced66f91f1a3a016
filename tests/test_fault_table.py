"""Each fault of docs/faults.md has a test that names it, and tests name no other fault."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.programs import ROOT

_ROW = re.compile(r"^\| ([A-Z]\d+[a-z]?) \| (.*) \|$", re.MULTILINE)
_PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of each row of the page's tables by its id, promises included."""
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in _ROW.findall(page)}


def markers(source: str) -> Iterator[tuple[int, list[ast.expr]]]:
    """Yield line and arguments of each ``pytest.mark.row(...)``, on a test, a parameter or a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="row")):
                yield node.lineno, node.args
            case _:
                pass


def named() -> Counter[str]:
    """How many tests name each fault."""
    found: Counter[str] = Counter()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for line, names in markers(path.read_text(encoding="utf-8")):
            where = f"{path.relative_to(ROOT)}:{line}"
            texts = [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]
            assert texts and len(texts) == len(names), f"{where}: write the ids of the faults as texts: row('P1', 'P2')"
            for text in texts:
                assert text in FAULTS, f"{where}: docs/faults.md has no fault {text!r}"
            found.update(texts)
    return found


TABLE = rows(_PAGE)
PROMISES = {name: cells for name, cells in TABLE.items() if name.startswith("G")}
FAULTS = {name: cells for name, cells in TABLE.items() if name not in PROMISES}


def test_every_fault_has_a_test() -> None:
    assert sorted(FAULTS.keys() - named().keys()) == [], "write a test with @pytest.mark.row(...) for each"


def test_every_row_is_complete() -> None:
    ids = [name for name, _ in _ROW.findall(_PAGE)]
    assert len(ids) == len(set(ids)), "an id is used twice"
    assert len(PROMISES) == 10 and len(FAULTS) > 60
    assert [name for name, cells in TABLE.items() if len(cells) != 2 or not all(cells)] == []


def test_a_promise_names_faults_that_there_are() -> None:
    assert [name for _, faults in PROMISES.values() for name in faults.split() if name not in FAULTS] == []


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ('@pytest.mark.row("P1", "P2")\ndef test(): pass', ["P1", "P2"]),
        ('pytest.param(1, marks=pytest.mark.row("N6"))', ["N6"]),
        ('pytestmark = pytest.mark.row("D1")', ["D1"]),
        ('@pytest.mark.nightly\ndef test(): row("P1")', []),
    ],
)
def test_markers_are_found(source: str, ids: list[str]) -> None:
    assert [name.value for _, names in markers(source) for name in names if isinstance(name, ast.Constant)] == ids


def test_rows_are_found() -> None:
    page = "| id | fault |\n|---|---|\n| P1 | a | b |\n| C2b | c | d e |\ntext | N1 | x |\n"
    assert rows(page) == {"P1": ["a", "b"], "C2b": ["c", "d e"]}
