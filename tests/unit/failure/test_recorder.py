"""What a rank writes down, and when it may have happened."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshrt.failure.rank import Recorder
from meshrt.failure.record import FailureRecord
from meshrt.hooks.facts import Raised


def written(errors: list[BaseException]) -> list[FailureRecord]:
    records: list[FailureRecord] = []
    recorder = Recorder(FailureRecord(mesh_id="m", mesh="train", rank=1, host="node", pid=7), records.append)
    for number, error in enumerate(errors):
        recorder.raised(Raised(f"7.{number}", error, None, 5_000_000_000, "a task"))
    return records


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except Exception as error:
        walker = error.__traceback__
        return error.with_traceback(walker.tb_next if walker is not None else None)  # without the frame of this `try`
    raise AssertionError("nothing was raised")


def plain() -> None:
    raise ValueError


def in_a_comprehension() -> None:
    _ = [int(each) for each in ("1", "x")]


def generator() -> Iterator[int]:
    yield 1
    raise ValueError


def in_a_generator() -> None:
    list(generator())


def in_a_coroutine() -> None:
    async def inner() -> None:
        raise ValueError

    async def outer() -> None:
        await asyncio.create_task(inner())

    loop.run_until_complete(outer())


loop = asyncio.new_event_loop()


@pytest.fixture(autouse=True, scope="module")
def closed_loop() -> Iterator[None]:
    """Not closed where it runs: that would be clean-up."""
    yield
    loop.close()


def behind_a_try() -> None:
    with contextlib.suppress(KeyError):
        pass
    raise ValueError


def in_a_with() -> None:
    with contextlib.nullcontext():
        raise ValueError


def in_a_finally() -> None:
    try:
        raise ValueError
    finally:
        ""


def below_a_with() -> None:
    with contextlib.nullcontext():
        plain()


@pytest.mark.parametrize("function", [plain, in_a_comprehension, in_a_generator, in_a_coroutine, behind_a_try])
def test_what_nothing_could_hold_up_has_happened_then(function: Any) -> None:
    (record,) = written([caught(function)])
    assert (record.low, record.high) == (5_000_000_000, 5_000_000_000)


@pytest.mark.parametrize("function", [in_a_with, in_a_finally, below_a_with])
def test_what_passed_clean_up_may_have_happened_before(function: Any) -> None:
    (record,) = written([caught(function)])
    assert (record.low, record.high) == (4_000_000_000, 5_000_000_000)


def test_a_rank_that_fails_all_the_time_sends_a_few_and_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1)
    monkeypatch.setattr("meshrt.failure.rank.time.monotonic", lambda: next(ticks) / 100)
    records = written([ValueError(str(number)) for number in range(500)])
    # 20 in a row, and one more every 2 s of these 5.
    assert len(records) == 22 and [record.copies for record in records[:20]] == [0] * 20
    assert records[20].copies > 100 and records[21].copies > 100


def test_the_first_exception_from_a_line_is_sent_though_others_come_all_the_time() -> None:
    """What ends the program may come behind many that are handled."""
    often = caught(plain)
    last = caught(in_a_comprehension)
    records = written([often] * 100 + [last, often, last])
    assert len(records) == 21 and records[-1].id == "7.100" and records[-1].copies == 80


def test_exceptions_from_ever_new_lines_are_counted_too() -> None:
    errors = []
    for number in range(200):
        namespace: dict[str, Any] = {}
        exec("\n" * number + "def fails():\n    raise ValueError", namespace)
        errors.append(caught(namespace["fails"]))
    assert len(written(errors)) == 64


def test_the_process_and_the_kind_of_matter() -> None:
    plain_record, memory = written([ValueError("x"), MemoryError()])
    assert (plain_record.mesh, plain_record.rank, plain_record.pid, plain_record.what) == ("train", 1, 7, "a task")
    assert (plain_record.blame, memory.blame) == ("user", "platform")
