"""How many links begin with a handshake at a time, and what happens with the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meshrt.transport import turns as turns_module
from meshrt.transport.outlink import OutLink
from meshrt.transport.turns import AT_A_TIME, Turns
from tests.unit.transport.fake_rank import address


class Later:
    """Calls what is due when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def __call__(self, _seconds: float, function: Callable[[], None]) -> None:
        self.due.append(function)


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def turns(later: Later) -> Turns:
    return Turns(later)


def links(count: int) -> list[OutLink]:
    return [OutLink(("mesh", rank, "actor"), address(f"/{rank}")) for rank in range(count)]


def test_only_some_begin_at_a_time_and_the_others_in_order(turns: Turns) -> None:
    begun: list[int] = []
    made = links(AT_A_TIME + 3)
    at_once = [turns.take(out, lambda rank=out.key[1]: begun.append(rank)) for out in made]  # type: ignore[misc]
    assert at_once == [True] * AT_A_TIME + [False] * 3 and begun == []
    turns.end(made[5])
    assert begun == [AT_A_TIME]
    turns.end(made[5])
    assert begun == [AT_A_TIME], "its turn was over"
    turns.end(made[AT_A_TIME])
    turns.end(made[0])
    assert begun == [AT_A_TIME, AT_A_TIME + 1, AT_A_TIME + 2]


def test_it_stays_the_turn_of_a_link_that_is_dialled_again(turns: Turns) -> None:
    first, *others = links(AT_A_TIME)
    assert all(turns.take(out, lambda: None) for out in (first, *others))
    assert turns.take(first, lambda: None)


def test_many_that_fail_at_once_do_not_nest(turns: Turns) -> None:
    """Each of them ends its turn in the call by which it begins."""
    made = links(AT_A_TIME + 3000)
    ended: list[OutLink] = []

    def fail(out: OutLink) -> None:
        ended.append(out)
        turns.end(out)

    for out in made:
        turns.take(out, lambda out=out: fail(out))  # type: ignore[misc]
    turns.end(made[0])
    assert ended == made[AT_A_TIME:]


def test_a_turn_that_lasts_too_long_holds_nobody_up(
    turns: Turns, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    for out in links(AT_A_TIME + 1):
        turns.take(out, lambda rank=out.key[1]: begun.append(rank))  # type: ignore[misc]
    later.due.pop()()
    assert begun == [] and len(later.due) == 1, "it is looked again"
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.0)
    later.due.pop()()
    assert begun == [AT_A_TIME] and later.due == []
