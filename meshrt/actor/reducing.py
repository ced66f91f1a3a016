"""A reduction on the ranks: each combines its own value with those of the ranks behind it, in a binomial tree.

The rank at the first position of a block halves it, again and again, and passes the rear halves on to the ranks at
their first positions. So a mesh of n ranks takes log2(n) steps, each rank sends one value, and values are combined in
the order of the ranks. A rank waits for ranks at higher positions only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from meshrt.actor.ending import CallInterrupt

__all__ = ["REDUCE", "Block", "Combine", "reduction", "reduction_async"]

#: The endpoint of a CALL whose arguments are a `Block`, and the arguments of the endpoint that it names.
REDUCE = "@reduce"

Combine = Callable[[Any, Any], Any]
"""Combines two values."""

Pass = Callable[["Block", tuple[object, ...], dict[str, object]], "Later"]
"""Passes a block on, with the arguments; returns the future of its value."""


class Later(Awaitable[object], Protocol):
    """The future of a block's value, or of the end of some (`meshrt.mesh.future.Future`)."""

    def get(self) -> object: ...
    def cancel(self, *, interrupt: bool = False) -> bool: ...


class Block(NamedTuple):
    """What a rank has to reduce: the values of the positions from ``first`` to ``last``, which is not included.

    ``target`` is the whole target, as `meshrt.mesh.target.Target` is made; ``pass_on`` sends a block to it, and
    ``all_ended`` returns futures that are done when no rank runs some blocks any more.
    """

    endpoint: str
    function: Combine
    target: tuple[Any, ...]
    pass_on: Pass
    all_ended: Callable[[Sequence[Any]], Sequence[Later]]
    first: int
    last: int


def reduction(method: Callable[..., object]) -> Callable[..., object]:
    """Return what a rank runs for `REDUCE` if the endpoint is a plain method."""

    def run(block: Block, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        rest: list[Later] = []
        try:
            _pass_on(block, args, kwargs, rest)
            value = method(*args, **kwargs)
            for later in reversed(rest):
                value = block.function(value, later.get())
            return value
        except BaseException as error:
            interrupted = isinstance(error, CallInterrupt)
            _cancel(rest, interrupt=interrupted)
            for ended in block.all_ended(rest) if interrupted else ():
                ended.get()
            raise

    return run


def reduction_async(method: Callable[..., Any]) -> Callable[..., Awaitable[object]]:
    """Return what a rank runs for `REDUCE` if the endpoint is a coroutine function."""

    async def run(block: Block, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        rest: list[Later] = []
        try:
            _pass_on(block, args, kwargs, rest)
            value = await method(*args, **kwargs)
            for later in reversed(rest):
                value = block.function(value, await later)
            return value
        except BaseException as error:
            _cancel(rest, interrupt=False)
            # Cancelled: it ends when the others have, too. It has failed: its caller is told at once.
            for ended in block.all_ended(rest) if not isinstance(error, Exception) else ():
                await ended
            raise

    return run


def _pass_on(block: Block, args: tuple[object, ...], kwargs: dict[str, object], rest: list[Later]) -> None:
    """Pass on all but the first position; the largest block first."""
    last = block.last
    while last - block.first > 1:
        middle = block.first + (last - block.first + 1) // 2
        rest.append(block.pass_on(block._replace(first=middle, last=last), args, kwargs))
        last = middle


def _cancel(rest: Sequence[Later], *, interrupt: bool) -> None:
    for later in rest:
        later.cancel(interrupt=interrupt)
