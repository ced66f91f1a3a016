"""Exceptions as plain data: never an exception itself, no frames of the runtime, bounded."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import uvloop

from meshrt.actor.errors import describe_exception, type_name
from meshrt.errors import RemoteException
from meshrt.files import RUNTIME_FILES
from meshrt.wire.errors import error_to_wire


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def describe(function: Callable[[], object]) -> RemoteException:
    remote = describe_exception(caught(function))
    msgpack.packb(error_to_wire(remote))  # whatever it is, it can be sent
    return remote


class Nasty(Exception):
    """Raises ``error`` wherever it can."""

    def __init__(self, error: BaseException, where: str) -> None:
        super().__init__("inside")
        self.error = error
        self.where = where

    def __str__(self) -> str:
        if self.where == "str":
            raise self.error
        return "text"

    def __repr__(self) -> str:
        if self.where == "repr":
            raise self.error
        return "repr"

    def __bool__(self) -> bool:
        if self.where == "bool":
            raise self.error
        return True


class Hidden(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise OSError(name)


def test_type_text_and_traceback() -> None:
    def fail() -> None:
        raise LookupError("what is wrong")

    remote = describe(fail)
    assert (remote.type, remote.message) == ("LookupError", "what is wrong")
    assert 'raise LookupError("what is wrong")' in remote.traceback and "in fail" in remote.traceback
    assert remote.traceback.startswith("Traceback (most recent call last)")


def test_names_of_types() -> None:
    assert type_name(ValueError()) == "ValueError"
    assert type_name(Hidden()) == f"{__name__}.Hidden"
    main = type("OfMain", (Exception,), {"__module__": "__main__"})
    assert type_name(main()) == "OfMain"


def test_causes_contexts_and_notes() -> None:
    def chain(explicit: bool, silent: bool = False) -> None:
        try:
            raise KeyError("first")
        except KeyError as first:
            second = ValueError("second")
            second.add_note("a note")
            if silent:
                raise second from None
            if explicit:
                raise second from first
            raise second  # noqa: B904 - the context is the subject

    for explicit in (True, False):
        remote = describe(lambda explicit=explicit: chain(explicit))  # type: ignore[misc]
        assert remote.cause is not None and remote.cause.type == "KeyError" and remote.notes == ("a note",)
    assert describe(lambda: chain(False, silent=True)).cause is None


@pytest.mark.parametrize(("text", "count"), [("Can't pickle f: attribute lookup f on __main__ failed", 1), ("no", 0)])
def test_what_only_the_script_has_is_explained_where_another_process_is_to_have_it(text: str, count: int) -> None:
    error = pickle.PicklingError(text)
    described = describe_exception(error)
    assert len(describe_exception(error).notes) == len(described.notes) == count
    assert ("On a rank, __main__ is not the script" in described.traceback) == bool(count)


@pytest.mark.parametrize("error", [OSError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError()])
@pytest.mark.parametrize("where", ["str", "repr", "bool"])
def test_whatever_an_exceptions_own_methods_do(error: BaseException, where: str) -> None:
    def fail() -> None:
        try:
            raise Nasty(error, where)
        except Nasty as inner:
            raise ValueError("outer") from inner

    remote = describe(fail)
    assert remote.cause is not None and remote.cause.type.endswith("Nasty")
    if where == "str":
        assert f"its text could not be made: {type(error).__name__}" in remote.cause.message


class Meta(type):
    """Nobody is told the name of its classes."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__mro__"):
            raise SystemExit(name)
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Meta):
    def __str__(self) -> str:
        raise Nameless


def refuse(_self: object) -> None:
    raise SystemExit


class Covered(Exception):
    """Has properties where an exception has its facts."""

    __cause__ = __context__ = __suppress_context__ = __traceback__ = __dict__ = __class__ = property(refuse)


def test_a_class_that_hides_its_name_or_its_facts() -> None:
    def fail() -> None:
        try:
            raise Nameless
        except Nameless as inner:
            raise Covered("outer") from inner

    remote = describe(fail)
    assert (remote.type, remote.message) == (f"{__name__}.Covered", "outer")
    assert remote.cause is not None and remote.cause.type == f"{__name__}.Nameless"
    assert remote.cause.message == "<Nameless: its text could not be made: Nameless>"


def test_a_module_that_is_no_text() -> None:
    odd = type("Odd", (Exception,), {"__module__": property(refuse)})
    assert type_name(odd()) == "?.Odd"
    assert type_name(type("Odd", (Exception,), {"__module__": type("Str", (str,), {})("m")})()) == "m.Odd"


def test_one_whose_attributes_cannot_be_read() -> None:
    def fail() -> None:
        raise Hidden

    assert describe(fail).type == f"{__name__}.Hidden"


def test_a_chain_in_a_ring_ends() -> None:
    def fail() -> None:
        first, second = ValueError("1"), ValueError("2")
        first.__cause__, second.__cause__ = second, first
        raise first

    remote: RemoteException | None = describe(fail)
    length = 0
    while remote is not None:
        remote, length = remote.cause, length + 1
    assert length <= 21


def test_odd_notes_and_odd_text() -> None:
    def fail() -> None:
        error = ValueError("\ud800" + "x" * (1 << 20))
        error.__notes__ = "no list"  # type: ignore[assignment]  # wrong on purpose
        raise error

    remote = describe(fail)
    assert remote.notes == () and "characters left out" in remote.message
    assert len(remote.message) < 300_000 and len(remote.traceback) < 300_000


def test_frames_of_the_runtime_are_left_out_unless_there_is_nothing_else() -> None:
    space: dict[str, Any] = {}
    exec(compile("def run(function): function()", RUNTIME_FILES + "actor/fake.py", "exec"), space)

    def fail() -> None:
        raise ValueError("mine")

    text = describe(lambda: space["run"](fail)).traceback
    assert "fake.py" not in text and "in fail" in text
    own = describe_exception(caught(lambda: space["run"](3))).traceback
    assert "TypeError" in own


def test_frames_of_the_event_loops_compiled_code_are_left_out() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    def run() -> None:
        loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(leave())
        finally:
            loop.close()

    text = describe(run).traceback
    assert "in leave" in text and "uvloop/" not in text
