"""Errors of ranks that are of the remote exception's type as well."""

from __future__ import annotations

import json
import pickle
import subprocess
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from meshrt.errors import ActorError, MeshError, ProcessDied, RankPlace, RemoteException
from meshrt.mesh.remote_errors import actor_error, add_others
from meshrt.wire.errors import error_to_wire
from meshrt.wire.frames import Frame
from meshrt.wire.messages import ERROR

PLACE = RankPlace("m1", "trainer", 3, (("gpus", 3),), "node1", 4711)


class NeedsMuch(ValueError):
    """Its constructor wants what nobody has, and has its own idea of everything else."""

    def __init__(self, first: int, *, second: str) -> None:
        super().__init__(first)
        self.first = first
        self.place = "mine"

    def __str__(self) -> str:
        raise RuntimeError("asked for a text")

    def __bool__(self) -> bool:
        raise RuntimeError("asked for a truth")

    def __getattribute__(self, name: str) -> Any:
        if name == "remote":
            raise RuntimeError("asked for remote")
        return super().__getattribute__(name)


class Sealed(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclass is wanted")


def made(exception: BaseException | None, name: str = "") -> ActorError:
    kind = type(exception)
    full = name or (kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")
    return actor_error(PLACE, "step", RemoteException(full, "bad batch", "Traceback ..."), exception)


def missing_file() -> OSError:
    return FileNotFoundError(2, "No such file", "/data/x")


def undecodable() -> UnicodeDecodeError:
    return UnicodeDecodeError("utf-8", b"abc\xff", 3, 4, "invalid start byte")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ValueError("bad batch"),
        lambda: KeyError("labels"),
        lambda: MemoryError("too much"),
        missing_file,
        undecodable,
        lambda: NeedsMuch(1, second="x"),
        lambda: json.JSONDecodeError("bad", "{", 0),
        lambda: subprocess.CalledProcessError(3, ["train"]),
        lambda: ExceptionGroup("two", [ValueError(1), KeyError(2)]),
    ],
)
def test_it_is_both(make: Callable[[], Exception]) -> None:
    exception = make()
    error = made(exception)
    assert isinstance(error, type(exception)) and isinstance(error, ActorError)
    assert str(error) == str(ActorError(PLACE, "step", error.remote, exception))
    assert (error.place, error.rank, error.endpoint, error.exception) == (PLACE, 3, "step", exception)
    assert bool(error) is True  # whatever the class says of its truth
    assert traceback.format_exception_only(error)[0].startswith("meshrt.errors.ActorError: trainer.step() raised on")


def test_attributes_of_the_exception_are_there() -> None:
    found: Any = made(missing_file())
    assert (found.errno, found.strerror, found.filename) == (2, "No such file", "/data/x")
    found = made(undecodable())
    assert (found.start, found.end, found.object, found.reason) == (3, 4, b"abc\xff", "invalid start byte")
    found = made(NeedsMuch(1, second="x"))
    assert (found.first, found.place) == (1, PLACE)
    found = made(subprocess.CalledProcessError(3, ["train"]))
    assert (found.returncode, found.cmd) == (3, ["train"])


def test_members_of_a_group_are_handled_one_by_one() -> None:
    handled: list[Exception] = []
    try:
        raise made(ExceptionGroup("two", [ValueError(1), KeyError(2)]))
    except* ValueError as group:
        handled += group.exceptions
    except* KeyError as group:
        handled += group.exceptions
    assert [type(each) for each in handled] == [ValueError, KeyError]


@pytest.mark.parametrize("name", ["ValueError", f"{__name__}.NeedsMuch", "json.decoder.JSONDecodeError"])
def test_a_type_is_found_by_its_name_where_the_object_could_not_be_sent(name: str) -> None:
    error = made(None, name)
    assert isinstance(error, ValueError) and error.exception is None


@pytest.mark.parametrize(
    "exception",
    [
        StopIteration(3),
        SystemExit(3),
        KeyboardInterrupt(),
        Exception("nothing more special"),
        Sealed(),
        ProcessDied(PLACE, signal=9),
    ],
)
def test_what_would_mean_something_else_here_is_an_actor_error_alone(exception: BaseException) -> None:
    error = made(exception)
    assert type(error) is ActorError and error.exception is exception


@pytest.mark.parametrize("name", ["NoSuchError", "no.such.Error", "print", "os.path", "tests.<locals>.Odd", "", "."])
def test_unknown_names_are_an_actor_error_alone(name: str) -> None:
    assert type(made(None, name)) is ActorError


def test_an_error_of_a_rank_that_another_one_has_called() -> None:
    inner = made(missing_file())
    outer = made(inner, "meshrt.errors.ActorError")
    assert isinstance(outer, FileNotFoundError) and outer.exception is inner
    again = made(made(ProcessDied(PLACE, signal=9)))
    assert type(again) is ActorError


@pytest.mark.parametrize("make", [missing_file, lambda: NeedsMuch(1, second="x"), lambda: Sealed()])
def test_it_survives_pickling(make: Callable[[], Exception]) -> None:
    exception = make()
    exception.unpicklable = lambda: None  # type: ignore[attr-defined]  # users attach whatever they like
    error = made(exception)
    error.add_note("seen at 3 am")
    back: Any = pickle.loads(pickle.dumps(error))
    assert isinstance(back, ActorError) and isinstance(back, type(exception)) is isinstance(error, type(exception))
    assert (back.place, back.endpoint, back.remote, back.exception) == (PLACE, "step", error.remote, None)
    assert back.__notes__ == ["seen at 3 am"] and str(back) == str(error)
    assert isinstance(back, MeshError)


def answer(kind: str, message: str, how: str = "") -> Frame:
    return Frame(ERROR, [1, error_to_wire(RemoteException(kind, message, "")), [], how], memoryview(b""))


def test_the_errors_of_further_ranks_are_told_in_groups() -> None:
    error = actor_error(PLACE, "step", RemoteException("ValueError", "bad 0", "Traceback"))
    others = [(RankPlace("m", "a", rank), answer("ValueError", f"bad {rank}")) for rank in (1, 2, 3, 5)]
    others.append((RankPlace("m", "a", 9), answer("OSError", "\x1b[31mdisk")))
    others.append((RankPlace("m", "a", 10), answer("", "", "stopped")))
    add_others(error, others)
    assert [other.rank for other in error.others] == [1, 2, 3, 5, 9]
    assert str(error).endswith(
        "Traceback\n\nranks 1-3,5 also raised ValueError: bad 1, ...\nrank 9 also raised OSError: \\e[31mdisk"
    )
    again: Any = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and issubclass(type(again), ValueError)
    assert [other.rank for other in again.others] == [1, 2, 3, 5, 9]


def test_no_more_lines_than_a_person_reads() -> None:
    error = actor_error(PLACE, "step", RemoteException("ValueError", "bad 0", ""))
    add_others(error, [(RankPlace("m", "a", rank), answer(f"Error{rank}", "x" * 1000)) for rank in range(1, 40)])
    assert len(error.others_text.splitlines()) == 6 and len(error.others_text) < 2000
    assert error.others_text.endswith("and 34 ranks raised other exceptions")
