"""Root side: requests to stopped and running ranks; the host agents gather the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from meshrt.hooks.facts import Answered, Body, Collected, Gathered, Group, Unanswered
from meshrt.hooks.operations import GroupedOperation
from meshrt.hooks.services import RootServices
from meshrt.program.words import silence

__all__ = ["gather_all", "gather_groups", "texts_of", "why_silent"]

S = TypeVar("S")
P = TypeVar("P")


async def gather_all(
    services: RootServices,
    targets: Mapping[str, Sequence[int]],
    operation: str,
    body: Body,
    seconds: float,
    *,
    stack_suffices: bool = False,
) -> list[Group]:
    """Send a request to ranks and return all answers. On the root's loop.

    Args:
        targets: Base ranks by mesh id.
        seconds: Time limit; ranks that do not answer in time are ``silent``.
        stack_suffices: Do not wait longer for a rank whose stack is known from faulthandler.
    """
    if not targets:
        return []
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    groups: list[Group] = []

    def report(gathered: Gathered) -> None:
        groups.extend(gathered.groups)
        if gathered.done and not done.done():
            done.set_result(None)

    number = services.gather(targets, operation, body, seconds, report, stack_suffices=stack_suffices)
    try:
        await done
    finally:
        services.leave_gather(number)
    return groups


async def gather_groups(
    services: RootServices,
    targets: Mapping[str, Sequence[int]],
    operation: GroupedOperation[S, P],
    seconds: float,
    *,
    stack_suffices: bool = False,
) -> list[Answered[S, P] | Unanswered]:
    """As `gather_all`, with types."""
    if not targets:
        return []
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    groups: list[Answered[S, P] | Unanswered] = []

    def report(collected: Collected[S, P]) -> None:
        groups.extend(collected.groups)
        if collected.done and not done.done():
            done.set_result(None)

    number = services.gather_groups(targets, operation, seconds, report, stack_suffices=stack_suffices)
    try:
        await done
    finally:
        services.leave_gather(number)
    return groups


def texts_of(groups: Sequence[Group]) -> dict[str, list[tuple[str, int]]]:
    """Return why ranks have not answered: text -> (mesh id, rank), without the ranks that have answered."""
    problems: dict[str, list[tuple[str, int]]] = {}
    for group in groups:
        if group.kind != "answered":
            why = why_silent(group.same) if group.kind == "silent" else str(group.same)
            problems.setdefault(why, []).extend((group.mesh_id, rank) for rank in group.ranks)
    return problems


def why_silent(same: object) -> str:
    """Return in words why a rank has not answered.

    Args:
        same: `Group.same` of a silent rank.
    """
    return silence(str(same.get("state", "")) if isinstance(same, dict) else "")
