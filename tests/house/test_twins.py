"""Where the unit tests of a module are, and which modules have none."""

from __future__ import annotations

import pytest

from tests.house.sizes import LOGIC
from tests.house.twins import twin, without_twin
from tests.support.sources import Source

LONG = "def f():\n" + "    x = 1\n" * (LOGIC + 1)


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("meshrt/errors.py", "tests/unit/test_errors.py"),
        ("meshrt/a/b/c_d.py", "tests/unit/a/b/test_c_d.py"),
        ("meshrt/a/__init__.py", "tests/unit/test_a.py"),
        ("meshrt/a/b/__init__.py", "tests/unit/a/test_b.py"),
        ("meshrt/a/__main__.py", "tests/unit/a/test_main.py"),
        ("meshrt/__init__.py", "tests/unit/test_meshrt.py"),
    ],
)
def test_where_the_tests_of_a_module_are(path: str, tests: str) -> None:
    assert twin(path) == tests


def test_only_logic_needs_a_test_of_the_same_path() -> None:
    sources = [Source("meshrt/a/b.py", LONG), Source("meshrt/a/c.py", LONG), Source("meshrt/a/d.py", "X = 1\n")]
    assert without_twin(sources, {"tests/unit/a/test_b.py", "tests/unit/test_c.py"}) == ["meshrt/a/c.py"]
