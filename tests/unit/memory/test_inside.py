"""One variable that is opened: what is inside has a name by which it can be opened in turn, and runs nothing."""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import Any, ClassVar

import numpy as np
import pytest

from meshrt.hooks.facts import ActorState, Variable
from meshrt.memory import inside, opening
from meshrt.memory.inside import children, find
from meshrt.memory.opening import opened
from meshrt.memory.operations import MeasureVariables, VariableRow

MIB = 1 << 20


class Node:
    __slots__ = ("data", "next")

    def __init__(self, data: Any) -> None:
        self.data = data


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(cls) -> int:
        raise AssertionError("hashed")


class Hostile(dict[Any, Any], metaclass=Meta):
    touched: ClassVar[list[str]] = []

    def _touched(self, *_: Any) -> Any:
        Hostile.touched.append("touched")
        raise AssertionError

    __getattribute__ = __iter__ = __len__ = __repr__ = __eq__ = __hash__ = items = _touched  # type: ignore[assignment]


class Point(tuple[int, ...]):
    def __iter__(self) -> Any:
        raise AssertionError("gone through")


class Trainer:
    def __init__(self) -> None:
        self.cache = {"train": [bytearray(MIB), bytearray(3 * MIB)], "test": bytearray(2 * MIB)}
        self.cashe = 1
        self.node = Node([bytearray(MIB)])


def names(value: Any) -> list[str]:
    found, count = children(value)
    assert count == len(found)
    return [each.of(Variable("a", "attribute", "v", value)).where for each in found]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, 2: 3, None: 4, (1, "b"): 5}, ["v['a']", "v[2]", "v[None]", "v[(1, 'b')]"]),
        ({"k" * 100: 1, 1 << 90: 2, Node(1): 3}, [f"v['{'k' * 60}'... #0]", "v[int #1]", f"v[{__name__}.Node #2]"]),
        ([1, 2], ["v[0]", "v[1]"]),
        (collections.deque("xy"), ["v[0]", "v[1]"]),
        (Point((7,)), ["v[0]"]),
        ({"only"}, ["v{'only'}"]),
        (Node(5), ["v.data"]),
        (collections.OrderedDict(a=1), ["v['a']"]),
        (np.ones(3), []),
        ("text", []),
        (functools.partial(divmod, 1), ["v.func", "v.args", "v.keywords"]),
        (iter([1]), ["v<0>"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_inside_has_names(value: Any, expected: list[str]) -> None:
    assert names(value) == expected


def test_nothing_of_the_users_is_run() -> None:
    hostile = Hostile()
    dict.__setitem__(hostile, "kept", bytearray(MIB))
    assert names(hostile) == ["v['kept']"]
    assert names([hostile, {1: hostile}]) == ["v[0]", "v[1]"]
    assert names(types.CellType(hostile)) == ["v<0>"]
    assert Hostile.touched == []


def test_a_variable_is_found_by_the_name_that_rows_show() -> None:
    trainer = Trainer()
    variables = [Variable("trainer", "attribute", f"self.{name}", value) for name, value in vars(trainer).items()] + [
        Variable("other", "attribute", "self.cache", {})
    ]

    def found(name: str) -> list[tuple[str, str]]:
        result = find(name, variables)
        assert not isinstance(result, str), result
        return [(each.actor, each.where) for each in result]

    assert found("self.cache") == [("trainer", "self.cache"), ("other", "self.cache")]
    assert found("trainer.self.cache['train'][1]") == [("trainer", "self.cache['train'][1]")]
    known = "expected one of: self.cache, self.cashe, self.node"
    assert found("self.node.data[0]") == [("trainer", "self.node.data[0]")]
    for name, why in (
        ("self.nodes", f"no variable 'self.nodes'; did you mean 'self.node'? {known}"),
        ("cache", f"no variable 'cache'; did you mean 'self.cache'? {known}"),
        ("zzz.q", f"no variable 'zzz.q'; {known}"),
        ("trainer.cashe", f"actor 'trainer' has no variable 'cashe'; did you mean 'self.cashe'? {known}"),
        (
            "other.self.node",
            "actor 'other' has no variable 'self.node'; did you mean 'self.cache'? expected one of: self.cache",
        ),
        (
            "self.node.dat",
            f"self.node ({__name__}.Node) contains no 'self.node.dat'; did you mean 'self.node.data'? expected one of: "
            "self.node.data",
        ),
        ("self.cashe.x", "self.cashe (int) cannot be opened: it contains no variables, and no 'self.cashe.x'"),
    ):
        assert find(name, variables) == why


def rows(name: str, instance: Any, **more: Any) -> dict[str, VariableRow]:
    asked = MeasureVariables(opened=name, most=20, **more)
    told, _ = opened([ActorState("trainer", None, None, None, instance=instance)], asked)
    return {row.where: row for row in told.rows}


def test_rows_have_sizes_of_what_is_inside_and_of_the_whole() -> None:
    found = rows("self.cache", Trainer())
    assert list(found) == ["self.cache", "self.cache['train']", "self.cache['test']"]
    whole, train, test = (row.sizes[0] for row in found.values())
    assert train.bytes > 4 * MIB and train.length == 2 and train.exact
    row = found["self.cache['test']"]
    assert (row.type, row.kind, test.exact) == ("bytearray", "item", True)
    assert 0 < whole.bytes - train.bytes - test.bytes < 1024
    trainer = Trainer()
    trainer.cache = {f"{number}" * 1000: 1 for number in range(50)}
    own = rows("self.cache", trainer)["self.cache (itself)"]  # what its keys and its table take
    assert own.sizes[0].bytes > 50_000 and own.kind == "itself"


def test_what_is_too_much_to_be_told_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer()
    trainer.many = [bytearray(1000) for _ in range(3000)]  # type: ignore[attr-defined]
    trainer.many[2999] = bytearray(MIB)  # type: ignore[attr-defined]
    found = rows("self.many", trainer)
    assert list(found)[:2] == ["self.many", "self.many[2999]"] and len(found) == 102
    rest = found["self.many (2900 more)"]
    (size,) = rest.sizes
    assert (size.bytes, size.exact, rest.kind) == (2900 * sys.getsizeof(bytearray(1000)), True, "rest")
    monkeypatch.setattr(inside, "MOST", 500)
    monkeypatch.setattr(opening, "_MOST_ROWS", 500)
    (size,) = rows("self.many", trainer)["self.many (2500 more)"].sizes
    assert (size.bytes, size.exact, size.why) == (0, False, "budget") and (size.estimate or 0) > 2 * MIB
    # Without any time, one thing is looked at all the same.
    found = rows("self.many", trainer, milliseconds=0.0)
    assert len(found) == 3 and not found["self.many (2999 more)"].sizes[0].exact
