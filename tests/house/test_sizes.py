"""What counts as a line of code, as a use of ``Any``, as logic."""

from __future__ import annotations

import pytest

from tests.house.sizes import LOGIC, any_names, code_lines, has_logic
from tests.support.sources import Source


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1\n\ny = 2\n", [1, 3]),
        ("# why\nx = 1  # because\n", [2]),
        ('"""One.\n\nTwo."""\n\nx = 1\n', [5]),
        ("class A:\n    '''Text.'''\n\n    def f(self):\n        '''Text.'''\n        return 1\n", [1, 4, 6]),
        ("X = 1\n'''What it is.\n\nMore.'''\n", [1]),
        ("X = '''a\n\nb'''\n", [1, 2, 3]),
        ("f(\n    1,\n\n    # why\n    2,\n)\n", [1, 2, 5, 6]),
        ("def f(): '''Text.'''\n", [1]),
        ("def f(x):\n    f'''{x}'''\n", [1, 2]),
        ("", []),
    ],
)
def test_lines_of_code(text: str, lines: list[int]) -> None:
    assert sorted(code_lines(Source("meshrt/a.py", text))) == lines


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("from typing import Any\n", 0),
        ("def f(a: Any, b: dict[str, Any]) -> Any: ...\n", 3),
        ("import typing\nx: typing.Any = 1\n", 1),
        ("'Any'  # Any\nanyone = any(x)\n", 0),
    ],
)
def test_uses_of_any(text: str, count: int) -> None:
    assert any_names(Source("meshrt/a.py", text)) == count


def test_a_long_function_is_logic() -> None:
    def function(lines: int, before: str = "") -> Source:
        body = "".join(f"        x{number} = 1\n\n" for number in range(lines))
        return Source("meshrt/a.py", f"class A:\n    async def f(\n        self,\n        x,\n    ):\n{before}{body}")

    assert has_logic(function(LOGIC + 1))
    assert not has_logic(function(LOGIC, before="        '''Text.\n\n        More.\n\n        More.\n        '''\n"))
    assert not has_logic(Source("meshrt/a.py", "X = (\n" + "    1,\n" * 20 + ")\n"))
