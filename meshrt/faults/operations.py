"""What the root asks ranks about plans of faults, and what they tell it. A plan is known by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meshrt.hooks.operations import Data, GroupedOperation, Nothing, Operation

__all__ = ["Armed", "BeginOnRank", "EndOnRank", "Happens", "Kind", "LookOnRank", "Planned", "Seen"]

Kind = Literal["kill", "stop", "cut"]


class Planned(Data, frozen=True):
    """A fault of some ranks.

    Attributes:
        ranks: Base ranks.
        endpoint: What is called; "__init__": the actor is built.
        number: Which of these calls, from 1, on each rank for itself.
        actor: Calls of this actor alone; "": of any.
        after: When the call has run, and before it is answered; otherwise before it runs.
    """

    kind: Kind
    ranks: Sequence[int]
    endpoint: str
    number: int
    actor: str = ""
    after: bool = False


class Armed(Data, frozen=True):
    """A rank counts calls from now on. ``elsewhere``: it is not on the machine of the script."""

    elsewhere: bool


class Seen(Data, frozen=True):
    """How far a rank is.

    Attributes:
        calls: How many of the calls of each fault there were; 0 for those of other ranks.
        busy: It is at work, or messages wait there.
        happening: Numbers of the faults that the root was told of, or is being told of.
    """

    calls: Sequence[int]
    busy: bool
    happening: Sequence[int]


class BeginOnRank(GroupedOperation[Armed, None], frozen=True, tag="faults.begin"):
    """Count calls from now on; a repeated request has no effect."""

    plan: str
    faults: Sequence[Planned]


class LookOnRank(GroupedOperation[None, Seen], frozen=True, tag="faults.look"):
    """How far a rank is."""

    plan: str


class EndOnRank(GroupedOperation[None, Seen], frozen=True, tag="faults.end"):
    """Count no more calls. What is happening is not undone."""

    plan: str


class Happens(Operation[Nothing], frozen=True, tag="faults.happens"):
    """A rank tells the root of a fault of its own, before it. ``number``: that of the fault in the plan, from 0."""

    plan: str
    number: int
