"""What ``meshrt attach`` has a process do: what ``meshrt.join()`` does, but that nothing is waited for or printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from meshrt.show.records import to_text
from meshrt.spmd.join import take_part
from meshrt.spmd.parts import JobSpec
from meshrt.spmd.starting import Starting

__all__ = ["Arrival", "arrive"]


class Arrival(NamedTuple):
    """The part of a process that is taken in.

    Attributes:
        spec: The program, as JSON: the first process to arrive starts it.
        rank: Of this process.
        command: The interpreter of that program, and its options: that of the command, which has all that it needs.
        variables: Of its environment, beside those of this process.
    """

    spec: str
    rank: int
    command: list[str]
    variables: dict[str, str]

    def to_json(self) -> str:
        """Return it as text."""
        return to_text([*self])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what `to_json` has written."""
        return cls(*json.loads(text))


def arrive(part: str, settled: Callable[[str], object]) -> None:
    """Become a rank. The main thread.

    Args:
        part: An `Arrival`, as JSON.
        settled: Called on another thread when it has joined, with ``""``, or with the reason why it never will.
    Raises:
        UsageError: The process is a part of a program already.
    """
    arrival = Arrival.from_json(part)
    spec = JobSpec.from_json(arrival.spec)
    variables: Mapping[str, str] = arrival.variables
    starting = Starting(spec, arrival.command, variables, quiet=True)
    take_part(spec, arrival.rank, starting, settled=settled, quiet=True)
