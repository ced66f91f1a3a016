"""Requests to many engines at once. A silent one, as C code holds its GIL, delays the others only briefly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from meshrt.errors import DebugAdapterError

__all__ = ["SILENT_SECONDS", "Answers", "ask_each"]

#: Seconds after which a rank is taken for silent: what it is asked it still does when it can.
SILENT_SECONDS = 2.0

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class Answers(Generic[K, T]):
    """What came in time, by who was asked."""

    said: dict[K, T] = field(default_factory=dict)
    refused: dict[K, DebugAdapterError] = field(default_factory=dict)
    silent: list[K] = field(default_factory=list)


async def ask_each(asks: Mapping[K, Coroutine[object, None, T]], seconds: float | None = None) -> Answers[K, T]:
    """Put all questions at once, and return when all are answered, or after ``seconds``: `SILENT_SECONDS`."""
    answers: Answers[K, T] = Answers()
    tasks = {key: asyncio.ensure_future(ask) for key, ask in asks.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=SILENT_SECONDS if seconds is None else seconds)
        for key, task in tasks.items():
            if not task.done():
                answers.silent.append(key)
                continue
            try:
                answers.said[key] = task.result()
            except DebugAdapterError as error:
                answers.refused[key] = error
    finally:
        for task in tasks.values():
            task.cancel()
    return answers
