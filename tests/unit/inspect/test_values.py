"""Values in one line, and as data."""

from __future__ import annotations

import math
import sys
from typing import Any

import msgspec
import numpy
import pytest

from meshrt.inspect.capping import TEXT_LIMIT
from meshrt.inspect.facts import ArrayFacts, DictFacts, NumberFacts, within
from meshrt.inspect.values import describe, describe_pretty


class Tensor:
    """Looks like a tensor on another device; remembers what it was asked to compute."""

    device = "cuda:1"
    dtype = "torch.float32"

    def __init__(self, values: list[float], shape: tuple[int, ...] = ()) -> None:
        self.values = values
        self.shape = shape or (len(values),)

    def detach(self) -> Tensor:
        return self

    def __eq__(self, other: object) -> Any:
        return Tensor([float(value == value) for value in self.values])

    def __ne__(self, other: object) -> Any:
        return Tensor([float(value != value) for value in self.values])

    def __invert__(self) -> Tensor:
        return Tensor([1.0 - value for value in self.values])

    def __getitem__(self, mask: Tensor) -> Tensor:
        return Tensor([value for value, wanted in zip(self.values, mask.values, strict=True) if wanted])

    def sum(self) -> Tensor:
        return Tensor([sum(self.values)])

    def min(self) -> Tensor:
        return Tensor([min(self.values)])

    def max(self) -> Tensor:
        return Tensor([max(self.values)])

    def mean(self) -> Tensor:
        if "int" in self.dtype:
            raise RuntimeError("mean(): input dtype should be either floating point or complex dtypes")
        return Tensor([sum(self.values) / len(self.values)])

    def double(self) -> Tensor:
        return Tensor(self.values)

    def item(self) -> float:
        return self.values[0]

    def cpu(self) -> None:
        raise AssertionError("it is not to leave its device")


class Awkward:
    def __repr__(self) -> str:
        raise ZeroDivisionError("no")


class Worse(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    def __repr__(self) -> str:
        raise Worse


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), (0.5, 0.5), (numpy.float32(2.5), 2.5), (numpy.array(7), 7.0)])
def test_numbers(value: Any, number: float) -> None:
    text, facts = describe(value)
    assert facts == NumberFacts(number)
    assert str(int(number)) in text


@pytest.mark.parametrize("value", [True, "text", None, [1, 2], 10**400])
def test_what_is_no_number(value: Any) -> None:
    assert describe(value) == (repr(value), None)


def test_a_small_dict_tells_its_items() -> None:
    ring: dict[str, Any] = {"lr": 0.1, "weights": numpy.arange(9.0)}
    ring["itself"] = ring
    text, facts = describe(ring)
    assert text == repr(ring) and isinstance(facts, DictFacts)
    assert facts.items["'lr'"] == "0.1"
    assert facts.items["'weights'"] == describe(ring["weights"])[0]
    assert within(facts, 10) is None and within(facts, 10_000) is facts and within(None, 1) is None
    assert describe(dict.fromkeys(range(1000)))[1] is None and describe({})[1] is None


def test_a_dict_tells_of_long_items_what_tells_them_apart() -> None:
    class Same:
        def __repr__(self) -> str:
            return "same"

    assert describe({"a": "x" * 198})[1] == DictFacts({"'a'": repr("x" * 198)})
    told = []
    for middle in "yz", "yz", "<N at 0x7f01aabbcc00>", "<N at 0x7f01aabbcc77>":
        facts = describe({"lr": 1, "a": f"{'x' * 250_000}{middle}{'x' * 250_000}"})[1]
        assert isinstance(facts, DictFacts) and facts.items["'lr'"] == "1" and len(facts.items["'a'"]) < 200
        told.append(facts.items["'a'"])
    assert told[0] == told[1] != told[2] == told[3]
    assert describe({"x" * 300: 1})[1] is None
    assert describe({Same(): 1, Same(): 2})[1] is None


def test_a_big_array_is_one_line() -> None:
    array = numpy.arange(12.0).reshape(3, 4)
    array[0, 0] = math.nan
    text, facts = describe(array)
    assert text == "ndarray 3x4 float64, min 1, max 11, mean 6, 1 nan"
    assert msgspec.to_builtins(facts) == {
        "kind": "array",
        "type": "ndarray",
        "shape": [3, 4],
        "dtype": "float64",
        "device": "cpu",
        "min": 1.0,
        "max": 11.0,
        "mean": 6.0,
        "nan": 1,
    }


def test_a_small_array_is_shown() -> None:
    text, facts = describe(numpy.array([[1, 2], [3, 4]]))
    assert text == "array([[1, 2], [3, 4]])"
    assert isinstance(facts, ArrayFacts)
    assert facts.mean == 2.5


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (numpy.zeros((0, 5)), "array([], shape=(0, 5), dtype=float64)"),
        (numpy.full(9, math.nan), "ndarray 9 float64, 9 nan"),
        (numpy.array(["a"] * 9), "ndarray 9 <U1"),
        (numpy.array([object()] * 9), "ndarray 9 object"),
        (numpy.array([True] * 9), "ndarray 9 bool, min 1, max 1, mean 1"),
        (numpy.array([math.inf] * 9), "ndarray 9 float64, min inf, max inf, mean inf"),
    ],
)
def test_odd_arrays(array: Any, text: str) -> None:
    assert describe(array)[0] == text


def test_a_tensor_stays_on_its_device() -> None:
    text, facts = describe(Tensor([1.0, math.nan, *range(8)]))
    assert text == "Tensor 10 float32 cuda:1, min 0, max 7, mean 3.22222, 1 nan"
    assert isinstance(facts, ArrayFacts)
    assert facts.device == "cuda:1"


def test_a_tensor_of_integers_has_a_mean() -> None:
    tensor = Tensor([float(i) for i in range(10)])
    tensor.dtype = "torch.int64"
    assert describe(tensor)[0] == "Tensor 10 int64 cuda:1, min 0, max 9, mean 4.5"


def test_what_cannot_be_shown() -> None:
    assert describe(Awkward()) == ("*** Awkward.__repr__ raised ZeroDivisionError: no", None)
    assert describe(Worse())[0] == "*** Worse.__repr__ raised Worse: (and its text cannot be shown)"


def test_what_only_looks_like_an_array() -> None:
    pretends: Any = type("ndarray", (), {"__repr__": lambda self: "<no array>"})()
    assert describe(pretends) == ("<no array>", None)


def test_text_is_bounded() -> None:
    assert len(describe("x" * (3 * TEXT_LIMIT))[0]) < TEXT_LIMIT + 100
    assert describe_pretty({1: "a" * 60, 2: "b" * 60})[0].count("\n") == 1


def test_numpy_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    assert describe(Tensor([float(i) for i in range(10)]))[0].startswith("Tensor 10 float32")
