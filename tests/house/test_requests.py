"""Which classes keep what is under way by counted numbers, and that those which are no requests exist."""

from __future__ import annotations

import pytest

from tests.house.requests import REGISTRIES, request_tables
from tests.support.sources import Source, read_sources


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        ("number = next(self._numbers)\nself._waiting[number] = answered", ["_waiting"]),
        ("answer = self._waiting[next(numbers)] = Future()", ["_waiting"]),
        ("self._count += 1\nself._asked[self._count] = answered", ["_asked"]),
        ("self._count += 1\nnumber = self._count\nself._asked[number] = (self, answered)", ["_asked"]),
        ("question = Question(next(self._numbers))\nself._open[question.number] = question", ["_open"]),
        ("self._open[number] = question", []),
        ("self._count += 1\nself._last[name] = self._count", []),
        ("self._count += 2\nself._open[self._count] = question", []),
        ("first = next(each for each in names)\nself._open[first] = question", []),
        ("number = next(self._numbers)\nreturn self._open[number]", []),
        ("number = next(self._numbers)\nopen[number] = question", []),
    ],
)
def test_a_table_by_counted_number(body: str, tables: list[str]) -> None:
    lines = "".join(f"\n        {line}" for line in body.split("\n"))
    for word in ("def", "async def"):
        text = f"class Asking:\n    {word} ask(self, answered):{lines}\n"
        assert request_tables(Source("meshrt/a.py", text)) == [("Asking", table) for table in tables]


def test_two_methods_that_use_one_table_are_one_mechanism() -> None:
    ask = "(self):\n        self._open[next(self._numbers)] = 1\n"
    text = f"class A:\n    def ask{ask}    def begin{ask}"
    assert request_tables(Source("meshrt/a.py", text)) == [("A", "_open")]


@pytest.mark.slow
def test_registries_exist_and_would_be_found() -> None:
    found = {(source.path, owner) for source in read_sources("meshrt") for owner, _ in request_tables(source)}
    assert REGISTRIES.keys() <= found, "it was moved or removed: change REGISTRIES in tests/house/requests.py"
