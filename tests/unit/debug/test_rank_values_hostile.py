"""Values that fight back, odd arrays, and variables that other threads change."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from meshrt.debug.dumpfile import read_dump
from meshrt.debug.rank.console import Released
from meshrt.debug.rank.dump import Dumper
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.hooks.facts import EndpointCall
from meshrt.inspect.facts import ArrayFacts
from meshrt.inspect.values import class_name, describe, describe_pretty, is_array, safe_text
from tests.unit.debug.fakes import FakeRank, FakeRankServices

CALL = EndpointCall("m1", "trainer", 2, "step", [["gpus"], 0, [4], [1]])


class Leaves(BaseException):
    def __str__(self) -> str:
        raise SystemExit(4)


class Exits:
    def __repr__(self) -> str:
        raise SystemExit(3)

    def __eq__(self, other: object) -> bool:
        raise SystemExit(5)

    __hash__ = None  # type: ignore[assignment]


class Interrupts:
    def __repr__(self) -> str:
        raise KeyboardInterrupt

    @property
    def __func__(self) -> Any:
        raise KeyboardInterrupt


class Raises:
    def __repr__(self) -> str:
        raise Leaves


class Meta(type):
    def __getattr__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Closed(type):
    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit(name)

    def __eq__(cls, other: object) -> bool:
        raise SystemExit("compared")

    __hash__ = type.__hash__


class OfMeta(metaclass=Meta):
    def __repr__(self) -> str:
        return "<of meta>"


def of_closed() -> Any:  # pytest looks at what stands in a module
    class OfClosed(metaclass=Closed):
        def __repr__(self) -> str:
            raise ValueError("closed")

    return OfClosed()


class Liar:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit("no class")

    def __repr__(self) -> str:
        return "<liar>"


class Text(str):
    def __len__(self) -> int:
        raise SystemExit

    def __getitem__(self, index: Any) -> str:
        raise SystemExit


class OwnText:
    def __repr__(self) -> str:
        return Text("mine")


class ExitsWhenAsked(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


HOSTILE: dict[str, tuple[Callable[[], Any], str]] = {
    "exits": (Exits, "*** Exits.__repr__ raised SystemExit: 3"),
    "interrupts": (Interrupts, "*** Interrupts.__repr__ raised KeyboardInterrupt: "),
    "raises": (Raises, "*** Raises.__repr__ raised Leaves: (and its text cannot be shown)"),
    "of_meta": (OfMeta, "<of meta>"),
    "of_closed": (of_closed, "*** OfClosed.__repr__ raised ValueError: closed"),
    "liar": (Liar, "<liar>"),
    "own_text": (OwnText, "mine"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_have_a_text(name: str) -> None:
    make, text = HOSTILE[name]
    value = make()
    assert describe(value) == (text, None)
    assert describe_pretty(value)[0] == text or describe_pretty(value)[0].startswith("*** ")  # pprint asks more
    assert type(safe_text(value)) is str
    assert not is_array(value)
    assert class_name(value) == text.removeprefix("*** ").split(".")[0] or not text.startswith("***")


def test_only_the_debuggers_own_passes() -> None:
    class Asks:
        def __repr__(self) -> str:
            raise Released(closing=False)

    with pytest.raises(Released):
        safe_text(Asks())
    with pytest.raises(Released):
        describe(Asks())


def test_hostile_arrays() -> None:
    class ndarray:
        @property
        def shape(self) -> Any:
            raise SystemExit

        def __repr__(self) -> str:
            return "<hostile>"

    class generic:
        item = dtype = None

        def __float__(self) -> float:
            raise SystemExit

        def __repr__(self) -> str:
            return "<hostile>"

    assert describe(ndarray()) == describe(generic()) == ("<hostile>", None)
    text, facts = describe(numpy.array([Exits()] * 9, dtype=object))
    assert text == "ndarray 9 object"
    assert isinstance(facts, ArrayFacts)
    assert facts.min is None


def shows(values: dict[str, Any]) -> str:
    exits, interrupts, raises = values["exits"], values["interrupts"], values["raises"]  # noqa: F841
    of_meta, of_closed, liar = values["of_meta"], values["of_closed"], values["liar"]  # noqa: F841
    own_text = values["own_text"]  # noqa: F841
    breakpoint()
    return "went on"


@pytest.mark.parametrize("brief", [True, False])
def test_nothing_leaves_the_prompt(rank: FakeRank, brief: bool) -> None:
    rank.start(shows, {name: make() for name, (make, _) in HOSTILE.items()})
    rank.stopped()
    for name, (_, text) in HOSTILE.items():
        for command in ("p ", "pp ", "!", "whatis ", "source ", "display ", "undisplay "):
            answer = rank.ask(f"{command}{name}", brief=brief)
            if brief and command == "p ":
                assert answer == f"{text}\n"
    for line in ("a", "exits", "!raise SystemExit", "p 1 if exits == 2 else 3", "p of_closed.x", "p liar.__class__"):
        assert "***" in rank.ask(line, brief=brief)
    rank.ask("!import itertools as it")
    rank.ask("display exits, (lambda: 1)")
    rank.ask("p 1")
    rank.end()
    assert (rank.error, rank.result) == (None, "went on")


def test_a_hostile_value_that_is_returned(rank: FakeRank) -> None:
    def gives() -> Any:
        breakpoint()
        return Exits()

    def calls() -> str:
        gives()
        return "went on"

    rank.start(calls)
    rank.stopped()
    stop = rank.step("r")
    assert "gives()->*** Exits.__repr__ raised SystemExit: 3" in stop["text"]
    assert "-> return Exits()" in stop["text"]
    assert "calls()" in rank.ask("w")
    rank.end()
    assert (rank.error, rank.result) == (None, "went on")


# ---- arrays ----------------------------------------------------------------------------------------------------------

masked: Any = numpy.ma.array


@pytest.mark.parametrize(
    ("array", "text", "some"),
    [
        (
            masked([1, 2, 3] * 5, mask=True),
            "ndarray 15 int64, 15 masked",
            {"masked": 15, "min": None, "max": None, "mean": None, "nan": 0},
        ),
        (
            masked([1.0, math.nan, 900.0] * 4, mask=[False, False, True] * 4),
            "ndarray 12 float64, min 1, max 1, mean 1, 4 nan, 4 masked",
            {"masked": 4, "nan": 4},
        ),
        (masked([1.0, math.nan] * 5, mask=[False, True] * 5), "ndarray 10 float64, min 1, max 1, mean 1, 5 masked", {}),
        (numpy.ma.masked, "masked", {"masked": 1, "min": None}),
        (masked(7), "masked_array(data=7, mask=False, fill_value=999999)", {"masked": 0, "min": 7.0}),
        (numpy.full(9, 1 + 2j), "ndarray 9 complex128", {"min": None, "max": None, "mean": None}),
        (numpy.array([1j, math.nan] * 5), "ndarray 10 complex128, 5 nan", {"min": None}),
        (numpy.array(1 + 2j), "array(1.+2.j)", {"shape": [], "min": None}),
        (
            numpy.zeros(9, dtype=[("a", "<i4"), ("b", "<f8")]),
            "ndarray 9 [('a', '<i4'), ('b', '<f8')]",
            {"min": None, "nan": 0},
        ),
        (numpy.array(["1"] * 9), "ndarray 9 <U1", {"min": None}),
        (numpy.array(["2020"] * 9, dtype="M8[ns]"), "ndarray 9 datetime64[ns]", {"min": None}),
        (numpy.zeros((0,)), "array([], dtype=float64)", {"min": None, "nan": 0}),
        (masked([], dtype=float), None, {"masked": 0, "min": None}),
    ],
)
def test_odd_arrays(array: Any, text: str | None, some: dict[str, Any]) -> None:
    shown, facts = describe(array)
    assert text is None or shown == text
    assert isinstance(facts, ArrayFacts)
    assert {name: getattr(facts, name) for name in some} == some


@pytest.mark.parametrize("value", [numpy.complex64(1 + 2j), numpy.str_("3"), numpy.datetime64("2020", "ns"), 1 + 2j])
def test_scalars_that_are_no_numbers(value: Any) -> None:
    assert describe(value) == (repr(value), None)


def test_a_long_dtype_is_cut() -> None:
    dtype = [(f"field{i}", "<f8") for i in range(500)]
    text, facts = describe(numpy.zeros(9, dtype=dtype))
    assert len(text) < 400
    assert len(msgspec.json.encode(facts)) < 500


# ---- variables that other threads change -----------------------------------------------------------------------------


def counts() -> tuple[int, str, int]:
    count = 0
    name = "before"
    total = 1
    wanted, done = threading.Event(), threading.Event()

    def count_up() -> None:
        nonlocal count
        while True:
            wanted.wait(10)
            wanted.clear()
            if count < 0:
                return
            count += 1
            done.set()

    def bump() -> None:
        done.clear()
        wanted.set()
        assert done.wait(10)

    thread = threading.Thread(target=count_up)
    thread.start()
    breakpoint()
    total += 1
    result = count, name, total
    count = -1
    wanted.set()
    thread.join(10)
    return result


STATEMENTS = ["name = (bump(), 'after')[1]", "p (name := (bump(), 'after')[1])"]
if sys.version_info >= (3, 12):  # before, what is nested in a statement does not see the variables
    STATEMENTS.append("name = [(bump(), 'after') for _ in 'a'][0][1]")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_assignment_sets_nothing_back(rank: FakeRank, statement: str) -> None:
    rank.start(counts)
    rank.stopped()
    rank.ask(statement)
    assert rank.ask("p count, name") == "(1, 'after')\n"
    rank.ask("bump()")
    rank.ask("p bump()")
    assert rank.ask("p count, name") == "(3, 'after')\n"
    rank.end()
    assert rank.result == (3, "after", 2)


def test_looking_sets_nothing_back(rank: FakeRank) -> None:
    rank.start(counts)
    rank.stopped()
    assert rank.step("n")["place"][2] == "counts"  # the prompt is in a trace function now
    assert rank.ask("p count, total") == "(0, 1)\n"
    assert rank.ask("mine = 5") == ""
    rank.ask("p bump()")
    assert rank.ask("p count + mine") == "6\n"
    rank.ask("total = 10")
    assert rank.ask("p mine") == "5\n"
    rank.end()
    assert rank.result == (1, "before", 11)


def test_an_assigned_closure_variable_counts(rank: FakeRank) -> None:
    rank.start(counts)
    rank.stopped()
    rank.ask("count = 10")
    rank.ask("bump()")
    rank.end()
    assert rank.result == (11, "before", 2)


def deletes() -> str:
    gone = 1
    kept = 2
    breakpoint()
    return ",".join(sorted(locals())) + f"={kept}"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on CPython does not unbind a variable")
def test_deleting(rank: FakeRank) -> None:
    rank.start(deletes)
    rank.stopped()
    rank.ask("del gone; kept = 3")
    assert "NameError" in rank.ask("p gone")
    rank.end()
    assert rank.result == "kept=3"


def test_a_frame_of_a_module(rank: FakeRank) -> None:
    names: dict[str, Any] = {}

    def runs() -> None:
        exec(compile("x = 1\nbreakpoint()\ny = x + 1\n", "<module>", "exec"), names)

    rank.start(runs)
    rank.stopped()
    rank.ask("x = 5; z = 1")
    rank.end()
    assert (names["x"], names["y"], names["z"]) == (5, 6, 1)


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_hostile_exception_gets_its_file(tmp_path: Path) -> None:
    services = FakeRankServices(2)
    services.run_directory = str(tmp_path)
    dumper = Dumper(services, SourceFetcher(services))

    def fail(values: list[Any]) -> None:
        local = values[0]  # noqa: F841
        odd, shut = values[1], values[2]  # noqa: F841
        try:
            raise Leaves
        except Leaves:
            raise ExitsWhenAsked from None

    class Odd:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise SystemExit

    class Shut(metaclass=Closed):
        pass

    with pytest.raises(ExitsWhenAsked) as caught:
        fail([Exits(), Odd(), Shut()])
    path = dumper.dump(CALL, caught.value)
    assert path is not None
    document = read_dump(path)
    assert document.exception.message == "*** ExitsWhenAsked.__repr__ raised SystemExit: 9"
    assert document.frames[-1].locals["local"] == "*** Exits.__repr__ raised SystemExit: 3"
    assert "shut" in document.frames[-1].locals


def test_an_exception_whose_chain_cannot_be_asked(tmp_path: Path) -> None:
    class Chained(Exception):
        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            raise SystemExit

    services = FakeRankServices(2)
    services.run_directory = str(tmp_path)
    try:
        raise Chained("text")
    except Chained as error:
        path = Dumper(services, SourceFetcher(services)).dump(CALL, error)
    assert path is not None
    assert read_dump(path).exception.message == "text"
