"""Tries changed examples on a target: so many of them, or as long as there is time and led by what they reach."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import meshrt
from tests.fuzz.mutating import Mutator

__all__ = ["BAIT", "Found", "Target", "attempt", "attempts", "search"]

_PACKAGE = str(Path(meshrt.__file__).parent) + os.sep
#: Seconds after which one attempt hangs; the machine may be busy.
_HANGS = 60
#: A pickle that would load the module `tests.fuzz.bait`, put among the examples: nobody may unpickle anything.
BAIT = b"\x80\x04\x8c\x0ftests.fuzz.bait\x94\x8c\x04FIRE\x94\x93\x94."


class Found(Exception):
    """An input has had an effect that it may not have; its notes say which input."""


@dataclass(frozen=True)
class Target:
    """What is tried.

    Attributes:
        run: Takes an input, and raises what it raises; returns for one that is understood, or refused as it should be.
        examples: Real inputs.
        refused: What may be raised.
        form: How inputs encode values (`meshrt.fuzz.mutating.FORMS`).
        words: What changes put in between.
        count: Changes that the suite tries, for each seed.
    """

    name: str
    run: Callable[[bytes], None]
    examples: Callable[[], Sequence[bytes]]
    refused: tuple[type[BaseException], ...] = ()
    form: str = ""
    words: Sequence[bytes] = field(default=())
    count: int = 1000


def attempt(target: Target, data: bytes) -> None:
    """Try one input. Raises Found."""
    try:
        with _limited():
            target.run(data)
    except target.refused:
        pass
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        found = Found(f"{target.name}: {type(error).__name__}: {error}")
        found.add_note(f"python -m tests.fuzz {target.name} --input {data.hex()}")
        raise found from error
    if "tests.fuzz.bait" in sys.modules:
        raise Found(f"{target.name}: {data.hex()} was unpickled")


@contextmanager
def _limited() -> Iterator[None]:
    """Interrupt what takes as long as nothing takes. A test's own watchdog goes on behind it."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it has not ended within {_HANGS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    left, interval = signal.setitimer(signal.ITIMER_REAL, _HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, before)


def attempts(target: Target, seed: int, count: int) -> None:
    """Try so many changed examples, and the examples themselves. Raises Found."""
    examples = target.examples()
    for each in examples:
        attempt(target, each)
    mutator = Mutator(zlib.crc32(target.name.encode()) + seed, examples, target.form, target.words)
    for _ in range(count):
        attempt(target, mutator.next())


def search(target: Target, seconds: float, seed: int) -> int:
    """Try inputs until the time is over; what reaches code that nothing has reached is changed further.

    Returns:
        How many were tried.
    Raises:
        Found: It ends with the first.
    """
    mutator = Mutator(seed, target.examples(), target.form, target.words)
    reached: set[Any] = set()
    for each in mutator.examples:
        with _noting(reached):
            attempt(target, each)
    deadline, tried = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        data, known = mutator.next(), len(reached)
        with _noting(reached):
            attempt(target, data)
        tried += 1
        if len(reached) > known:
            mutator.examples.append(data)
        if not tried % 1000:
            gc.collect()
    return tried


@contextmanager
def _noting(reached: set[Any]) -> Iterator[None]:
    """Note the steps from line to line in code of meshrt."""

    def local(last: int) -> Callable[[FrameType, str, Any], Any]:
        def step(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            if event == "line":
                reached.add((frame.f_code, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    def called(frame: FrameType, _event: str, _argument: Any) -> Any:
        return local(0) if frame.f_code.co_filename.startswith(_PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)
