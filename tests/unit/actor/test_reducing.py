"""The tree of a reduction, without processes: each block runs where it is passed on to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.actor.reducing import Block, reduction, reduction_async


class Tree:
    """Runs blocks here; notes the depth of the tree, and what was cancelled."""

    def __init__(self, fails: int = -1) -> None:
        self.fails = fails
        self.cancelled = 0
        self.ran: list[int] = []

    def value(self, block: Block) -> str:
        self.ran.append(block.first)
        if block.first == self.fails:
            raise ValueError(block.first)
        return f"{block.first} "

    def pass_on(self, block: Block, args: Any, kwargs: Any) -> Any:
        def cancel(*, interrupt: bool) -> None:
            self.cancelled += 1

        try:
            value = str(reduction(lambda: self.value(block))(block, args, kwargs))
        except ValueError as error:
            failure = error

            def get() -> str:
                raise failure
        else:

            def get() -> str:
                return value

        return SimpleNamespace(get=get, cancel=cancel)

    def block(self, count: int) -> Block:
        return Block("v", lambda left, right: left + right, (), self.pass_on, lambda _rest: (), 0, count)


@given(st.integers(1, 100))
def test_every_rank_runs_once_and_values_are_combined_in_order(count: int) -> None:
    tree = Tree()
    whole = tree.block(count)
    assert reduction(lambda: tree.value(whole))(whole, (), {}) == "".join(f"{rank} " for rank in range(count))
    assert sorted(tree.ran) == list(range(count))


def test_the_tree_is_as_deep_as_it_has_to_be() -> None:
    passed: list[tuple[int, int]] = []
    done = SimpleNamespace(get=lambda: "", cancel=lambda *, interrupt: None)

    def note(block: Block, *_: Any) -> Any:
        passed.append((block.first, block.last))
        return done

    block = Block("v", lambda left, right: left + right, (), note, lambda _rest: (), 0, 8)
    reduction(lambda: "")(block, (), {})
    assert passed == [(4, 8), (2, 4), (1, 2)]


def test_a_failure_cancels_what_others_do_for_it() -> None:
    tree = Tree(fails=0)
    whole = tree.block(8)
    with pytest.raises(ValueError, match="0"):
        reduction(lambda: tree.value(whole))(whole, (), {})
    assert tree.cancelled >= 3
    other = Tree(fails=5)
    with pytest.raises(ValueError, match="5"):
        reduction(lambda: other.value(other.block(8)))(other.block(8), (), {})


def test_an_async_endpoint_is_awaited() -> None:
    async def value() -> str:
        await asyncio.sleep(0)
        return "0 "

    class Later:
        def get(self) -> str:
            raise AssertionError("the event loop would be blocked")

        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "1 "

        def cancel(self, *, interrupt: bool = False) -> bool:
            return False

    block = Block("v", lambda left, right: left + right, (), lambda *_: Later(), lambda _rest: (), 0, 2)

    async def main() -> object:
        return await reduction_async(value)(block, (), {})

    assert asyncio.run(main()) == "0 1 "
