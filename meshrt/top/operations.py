"""What ``top`` asks ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshrt.hooks.operations import Data, GroupedOperation

__all__ = ["ActorWork", "Work", "WorkOfRank"]


class ActorWork(Data, frozen=True, array_like=True):
    """How much an actor has to do (`meshrt.hooks.facts.Workload`); ``endpoint``: the one that runs, or ""."""

    name: str
    endpoint: str
    calls: int
    waiting: int
    more: bool


class WorkOfRank(Data, frozen=True):
    """The work of one rank.

    Attributes:
        devices: Bytes that torch keeps on each device.
        told: When, monotonic seconds.
    """

    actors: Sequence[ActorWork]
    devices: Mapping[str, int]
    told: float


class Work(GroupedOperation[None, WorkOfRank], frozen=True, tag="top.work"):
    """The work of the actors of each rank."""
