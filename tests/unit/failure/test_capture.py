"""What is kept of an exception, and that nothing of the user's is run for it."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from meshrt.errors import ActorError, CallTimeout, MeshBusy, ProcessDied, RankPlace, RemoteException
from meshrt.failure.capture import capture, references
from meshrt.failure.record import Frame
from meshrt.inspect.masking import MASK

PLACE = RankPlace("m", "trainer", 2)


class Colour(enum.Enum):
    RED = 1


class Hostile:
    """Must not be asked for anything."""

    def __init__(self) -> None:
        self.size = 3
        self.api_key = "sk-123"

    def __repr__(self) -> str:
        raise SystemExit

    __str__ = __repr__
    __len__ = __eq__ = __hash__ = __bool__ = __repr__  # type: ignore[assignment]


@dataclasses.dataclass
class Settings:
    rate: float = 0.1
    password: str = "hunter2"


def caught(function: Any, *arguments: Any) -> BaseException:
    try:
        function(*arguments)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def locals_of(function: Any, *arguments: Any) -> dict[str, str]:
    return capture(caught(function, *arguments)).frames[-1].locals


def test_the_chain_with_its_frames_and_notes() -> None:
    def lookup() -> None:
        try:
            os.environ["NO_SUCH_LABELS"]
        except KeyError as error:
            failure = ValueError("bad batch")
            failure.add_note("of shard 7")
            raise failure from error

    facts = capture(caught(lookup))
    assert (facts.type, facts.message, facts.notes) == ("ValueError", "bad batch", ("of shard 7",))
    assert facts.bases == ("ValueError", "Exception", "BaseException")
    assert facts.frames[-1].function == "lookup" and facts.frames[-1].source == "raise failure from error"
    (cause,) = facts.linked
    assert (cause.type, cause.relation) == ("KeyError", "cause")


def test_a_group_with_its_members() -> None:
    def fail() -> None:
        raise ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])

    facts = capture(caught(fail))
    assert [(each.type, each.relation) for each in facts.all()] == [
        ("ExceptionGroup", ""),
        ("ValueError", "member"),
        ("ExceptionGroup", "member"),
        ("KeyError", "member"),
    ]


def test_variables_are_shown_as_they_lie_there() -> None:
    def fail(batch: list[int]) -> None:
        path, colour, hostile, settings = Path("/x"), Colour.RED, Hostile(), Settings()  # noqa: F841
        array, counts = np.zeros((3, 4), "float32"), collections.defaultdict(list, a=[1])  # noqa: F841
        day = datetime.date(2026, 1, 2)  # noqa: F841
        raise ValueError

    assert locals_of(fail, [1, 2]) == {
        "batch": "[1, 2]",
        "path": "PosixPath('/x')",
        "colour": "Colour.RED",
        "hostile": f"<{__name__}.Hostile>",
        "hostile.size": "3",
        "hostile.api_key": MASK,
        "settings": f"<{__name__}.Settings>",
        "settings.rate": "0.1",
        "settings.password": MASK,
        "array": "ndarray 3x4 float32",
        "counts": "{'a': [1]}",
        "day": "datetime.date(2026, 1, 2)",
    }


def test_what_the_failing_line_names_comes_first() -> None:
    def fail(step: int, unseen: int) -> None:
        settings, shards, other = Settings(), [1, 2], "x"  # noqa: F841
        raise LookupError(
            f"{step} has no {settings.rate}",
            shards[0],
        )

    named = {"step", "settings", "settings.rate", "shards"}
    found = list(locals_of(fail, 3, 4))
    assert set(found[:4]) == named
    assert found[4:] == ["unseen", "other", "settings.password"]  # attributes last, however many there are


def test_a_secret_in_a_message_a_note_or_the_source_is_masked() -> None:
    def fail() -> None:
        error = ConnectionError("cannot reach postgres://me:hunter2@db; tried {'token': 'hunter3'}")
        error.add_note("with password=hunter4")
        raise error  # "sk-hunter5hunter5hunter5"

    try:
        fail()
    except ConnectionError as caught:
        facts = capture(caught)
    assert facts.message == f"cannot reach postgres://me:{MASK}@db; tried {{'token': {MASK}}}"
    assert facts.notes == (f"with password={MASK}",)
    assert facts.frames[-1].source == f'raise error  # "{MASK}"'


def test_a_secret_within_a_value_is_masked_too() -> None:
    def fail() -> None:
        config = {"rate": 1, "api_key": "sk-123"}  # noqa: F841
        query = "user=me;password=hunter2;host=db"  # noqa: F841
        headers = {"Authorization": "Bearer hunter2", "Accept": "text/html"}  # noqa: F841
        raw = "GET / HTTP/1.1 Authorization: Basic aHVudGVyMg== x-api-key: hunter2 Accept: */*"  # noqa: F841
        address = "postgres://me:hunter2@db.example:5432/runs and tcp://node1:29500"  # noqa: F841
        shown = "sent Bearer sk-hunter2hunter2hunter2 to a bearer of news"  # noqa: F841
        raise ValueError

    found = locals_of(fail)
    assert "sk-123" not in found["config"] and "'rate': 1" in found["config"]
    assert found["query"] == f"'user=me;password={MASK};host=db'"
    assert found["headers"] == f"{{'Authorization': {MASK}, 'Accept': 'text/html'}}"
    assert found["raw"] == f"'GET / HTTP/1.1 Authorization: {MASK} x-api-key: {MASK} Accept: */*'"
    assert found["address"] == f"'postgres://me:{MASK}@db.example:5432/runs and tcp://node1:29500'"
    assert found["shown"] == f"'sent Bearer {MASK} to a bearer of news'"


def test_everything_is_bounded() -> None:
    def fail(depth: int) -> None:
        text, many = "x" * 1_000_000, [["y" * 1000] * 1000] * 1000  # noqa: F841
        if depth:
            fail(depth - 1)
        raise ValueError("m" * 1_000_000)

    facts = capture(caught(fail, 200))
    assert len(repr(facts.to_plain())) < 100_000 and len(facts.frames) <= 60
    assert facts.left_out + len(facts.frames) == 202
    error: BaseException = ValueError("0")
    for number in range(1, 500):
        error.__cause__, error = None, _after(error, number)
    assert len(list(capture(error).all())) <= 10


def _after(cause: BaseException, number: int) -> BaseException:
    error = ValueError(str(number))
    error.__cause__ = cause
    return error


def test_errors_of_meshrt_say_whom_they_are_about() -> None:
    remote = RemoteException("ValueError", "bad", "Traceback ...", failure="1f.1")
    about = capture(ActorError(PLACE, "step", remote)).about
    assert about is not None and (about.failure, about.mesh_id, about.rank) == ("1f.1", "m", 2)
    about = capture(ProcessDied(PLACE, signal=9)).about
    assert about is not None and (about.failure, about.rank) == ("", 2)
    about = capture(CallTimeout("step", 1.0, [PLACE], 4)).about
    assert about is not None and about.rank == 2
    assert capture(CallTimeout("stop", 1.0, [], 4)).about is None
    assert capture(MeshBusy(PLACE, "step", 70 << 20, 64 << 20)).about is None  # the rank has not failed
    assert "Traceback" not in capture(ActorError(PLACE, "step", remote)).message


def test_an_exception_that_refuses_everything() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            raise SystemExit

    class Awkward(Exception, metaclass=Meta):
        def __str__(self) -> str:
            raise KeyboardInterrupt

        def __getattribute__(self, name: str) -> Any:
            raise SystemExit

    def fail() -> None:
        raise Awkward

    facts = capture(caught(fail))
    assert facts.type.endswith("Awkward") and "Exception" in facts.bases and facts.frames[-1].function == "fail"


def test_no_code_of_the_users_is_run_for_values() -> None:
    class Asked(Exception):
        pass

    class Loud:
        def __repr__(self) -> str:
            raise SystemExit

        __lt__ = __len__ = __iter__ = __hash__ = None  # type: ignore[assignment]

    class Mapped(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: object) -> object:
            raise SystemExit

        __len__ = __iter__ = items = keys = __getitem__  # type: ignore[assignment]

    class Member(enum.Enum):
        ONE = Loud()

    def fail() -> None:
        loud = Loud()
        values, part, method = {1: loud}.values(), slice(loud), loud.__repr__
        mapped, member, repeated = Mapped(a=loud), Member.ONE, itertools.repeat(loud)  # noqa: F841
        try:
            raise Asked(loud)
        except Asked as error:
            kept = error  # noqa: F841
        raise ValueError(len(values), part, method)

    found = locals_of(fail)
    assert found["member"] == "Member.ONE" and found["mapped"].startswith("{'a': <")
    assert all("Loud" in found[name] or found[name].startswith("<") for name in ("values", "part", "repeated"))


def test_whom_an_exception_is_about_that_was_left_out() -> None:
    def fail() -> None:
        try:
            raise ProcessDied(PLACE, signal=9)
        except ProcessDied:
            raise RuntimeError("no weights") from None

    facts = capture(caught(fail))
    assert not facts.linked and facts.about is not None and facts.about.rank == 2


def test_references_go_through_long_chains_and_groups() -> None:
    error: BaseException = ProcessDied(PLACE, signal=9)
    for number in range(30):
        error = _after(error, number)
    assert [about.rank for _, about in references(error)] == [2]
    group = BaseExceptionGroup("many", [*(ValueError(str(number)) for number in range(50)), error])
    assert [about.rank for _, about in references(group)] == [2]


def test_a_module_shows_none_of_its_names(tmp_path: Path) -> None:
    module = tmp_path / "fails.py"
    module.write_text("import os\nvalue = 3\nraise ValueError\n")
    sys.path.insert(0, str(tmp_path))
    try:
        facts = capture(caught(__import__, "fails"))
    finally:
        sys.path.remove(str(tmp_path))
    assert facts.frames[-1] == Frame(str(module), 3, "<module>", "raise ValueError")
