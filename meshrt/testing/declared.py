"""Faults as a test declares them: what happens to which ranks at which call. Plain data, any thread."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from meshrt.errors import UsageError
from meshrt.faults.operations import Kind
from meshrt.ranks import fold_ranks
from meshrt.selection import Shape
from meshrt.selection.grammar import parse, resolve

__all__ = ["Call", "Fault", "Ranks", "call", "cut", "kill", "stop"]

Ranks = int | str | Iterable[int]
"""Ranks of the mesh that a plan is for: a number, several numbers, or a selection such as ``"hosts=1"``."""


@dataclass(frozen=True)
class Call:
    """A call on each rank for itself; see `call`."""

    endpoint: str
    number: int = 1
    actor: str = ""
    after: bool = False

    def __str__(self) -> str:
        name = f"{self.actor}.{self.endpoint}" if self.actor else self.endpoint
        return f"{'after' if self.after else 'at'} call {self.number} of {name}()"


def call(endpoint: str, number: int = 1, *, actor: str = "", after: bool = False) -> Call:
    """The moment of a fault: ``call("step", 5)`` is the fifth call of ``step`` on a rank, before it runs.

    Calls are counted on each rank for itself, from the beginning of the plan on.

    Args:
        endpoint: Name of the endpoint; ``"__init__"``: an actor is built.
        number: Which call, >= 1.
        actor: Only calls of the actor of this name count; "": those of all actors that have the endpoint.
        after: When the call has run, and before its caller is answered. Calls that have run are counted then.
    Raises:
        UsageError: There is no such number, or no name.
    """
    if not str(endpoint).isidentifier():
        raise UsageError(f"call: {endpoint!r} is not the name of an endpoint")
    if number < 1:
        raise UsageError(f"call: {endpoint}() has no call {number!r}; expected a number, 1 or more")
    return Call(endpoint, number, actor, after)


@dataclass(frozen=True)
class Fault:
    """A fault of some ranks; see `kill`, `stop` and `cut`."""

    kind: Kind
    ranks: int | str | tuple[int, ...]
    at: Call
    seconds: float | None = None

    def of(self, shape: Shape) -> tuple[int, ...]:
        """Return the base ranks of a mesh of this shape that have it.

        Raises:
            UsageError: The mesh has no such rank.
            SelectionError: The selection does not parse, or selects nothing.
        """
        if isinstance(self.ranks, str):
            return resolve(parse(self.ranks), shape)
        numbers = (self.ranks,) if isinstance(self.ranks, int) else self.ranks
        members = shape.ranks()
        for number in numbers:
            if not 0 <= number < len(members):
                raise UsageError(f"{self.kind}: the mesh has no rank {number}: {shape} has {len(members)}")
        return tuple(sorted({members[number] for number in numbers}))

    def text(self, ranks: Iterable[int]) -> str:
        """Return what happens to these base ranks, in words."""
        given = fold_ranks(ranks)
        return f"{self.kind} of {'rank' if given.isdigit() else 'ranks'} {given} {self.at}"


def kill(ranks: Ranks, *, at: Call) -> Fault:
    """The process of each of these ranks is killed (SIGKILL) at its call.

    Raises:
        UsageError: No ranks are given.
    """
    return _fault("kill", ranks, at)


def stop(ranks: Ranks, *, at: Call, seconds: float | None = None) -> Fault:
    """The process of each of these ranks is stopped (SIGSTOP) at its call, with all its threads.

    Args:
        seconds: After so long it goes on (SIGCONT). None: at `FaultPlan.resume`, or at the end of the plan.
    Raises:
        UsageError: No ranks are given, or ``seconds`` is not positive.
    """
    if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(f"stop: invalid seconds={seconds}: expected a positive number")
    return _fault("stop", ranks, at, seconds)


def cut(ranks: Ranks, *, at: Call) -> Fault:
    """The connection from each of these ranks to the caller of that call is shut down. The rank goes on.

    Raises:
        UsageError: No ranks are given.
    """
    return _fault("cut", ranks, at)


def _fault(kind: Kind, ranks: Ranks, at: Call, seconds: float | None = None) -> Fault:
    given = ranks if isinstance(ranks, int | str) else tuple(ranks)
    if not isinstance(at, Call):
        raise UsageError(f"{kind}: at={at!r} is not a call; expected at=testing.call(...)")
    if given in ("", ()):
        raise UsageError(f"{kind}: no ranks are given")
    return Fault(kind, given, at, seconds)
