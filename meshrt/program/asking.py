"""Root side: requests to stopped and running ranks; the host agents gather the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from meshrt.hooks.facts import Answered, Gathered, Unanswered
from meshrt.hooks.operations import GroupedOperation
from meshrt.hooks.services import RootServices

__all__ = ["gather_all"]

S = TypeVar("S")
P = TypeVar("P")


async def gather_all(
    services: RootServices,
    targets: Mapping[str, Sequence[int]],
    operation: GroupedOperation[S, P],
    seconds: float,
    *,
    stack_suffices: bool = False,
) -> list[Answered[S, P] | Unanswered]:
    """Put an operation to ranks and return all answers. On the root's loop.

    Args:
        targets: Base ranks by mesh id.
        seconds: Time limit; ranks that do not answer in time are ``silent``.
        stack_suffices: Do not wait longer for a rank whose stack is known from faulthandler.
    """
    if not targets:
        return []
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    groups: list[Answered[S, P] | Unanswered] = []

    def report(gathered: Gathered[S, P]) -> None:
        groups.extend(gathered.groups)
        if gathered.done and not done.done():
            done.set_result(None)

    number = services.gather(targets, operation, seconds, report, stack_suffices=stack_suffices)
    try:
        await done
    finally:
        services.leave_gather(number)
    return groups
