"""The figures of a tiny tree, and how they are printed."""

from __future__ import annotations

import json

from tests.house.__main__ import as_json, as_text
from tests.house.figures import Figure, figures
from tests.support.sources import Source

TREE = [
    Source("meshrt/a.py", "from typing import Any\nfrom meshrt.b import f\n\nx: Any = 1\n"),
    Source("meshrt/b.py", '"""Text."""\n\nif TYPE_CHECKING:\n    from meshrt.a import x\n'),
    Source("meshrt/c.py", "# why\n" * 401),
]


def test_the_figures_of_a_tree() -> None:
    found = {each.name: each for each in figures(TREE, set())}
    assert {name: each.now for name, each in found.items() if each.now} == {
        "lines of code": 5,
        "uses of Any": 1,
        "circles of imports": 1,
        "modules in circles": 2,
        "small modules with one importer": 2,
        "modules": 3,
        "median lines of a module": 4,
        "lines of the longest module": 401,
        "modules over 400 lines": 1,
    }
    assert found["lines of code"].places == ["meshrt/a.py: 3", "meshrt/b.py: 2"]
    assert found["circles of imports"].places == ["meshrt/a.py, meshrt/b.py"]
    assert found["small modules with one importer"].places == [
        "meshrt/a.py (of meshrt/b.py)",
        "meshrt/b.py (of meshrt/a.py)",
    ]
    assert found["modules over 400 lines"].places == ["meshrt/c.py: 401"]


FOUND = [Figure("lines", 12_345, 10_000, ["meshrt/a.py: 12345"]), Figure("median", 7.5)]


def test_a_table_and_then_the_places() -> None:
    assert as_text(FOUND).splitlines() == [
        "figure       now     aim",
        "--------  ------  ------",
        "lines     12,345  10,000",
        "median       7.5",
        "",
        "lines:",
        "  meshrt/a.py: 12345",
    ]


def test_one_object_for_programs() -> None:
    assert json.loads(as_json(FOUND)) == {
        "lines": {"now": 12345, "aim": 10000, "places": ["meshrt/a.py: 12345"]},
        "median": {"now": 7.5, "aim": None, "places": []},
    }
