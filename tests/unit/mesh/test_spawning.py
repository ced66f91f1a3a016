"""Sizes of meshes that the hosts of an engine do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.mesh.spawning import _check_division
from tests.unit.mesh.root_fakes import FakeAgent


def agents(*names: str, elsewhere: bool = True) -> Any:
    made = [FakeAgent(name) for name in names]
    for number, agent in enumerate(made, 1):
        agent.machine = number if elsewhere else 0
    return made


def test_ranks_that_are_not_as_many_on_each_host() -> None:
    expected = (
        r"^5 ranks cannot be divided evenly, as the engine has 2 hosts \(n1, n2\); expected a multiple of 2, such as "
        "6, or hosts=1 together"
    )
    with pytest.raises(UsageError, match=expected):
        _check_division(None, 5, agents("n1", "n2"))
    _check_division(None, 6, agents("n1", "n2"))
    _check_division(1, 5, agents("n1"))


def test_more_hosts_than_there_are() -> None:
    with pytest.raises(UsageError, match=r"^hosts=4, but the engine has 2 hosts \(n1, n2\); expected hosts=2 or fewer"):
        _check_division(4, 8, agents("n1", "n2"))
    with pytest.raises(UsageError, match=r"hosts=2, but the engine has 1 host \(n1\)"):
        _check_division(2, 2, agents("n1"))
    _check_division(2, 8, agents("n1", "n2"))


def test_the_first_of_many_hosts_are_named() -> None:
    with pytest.raises(UsageError, match=r"12 hosts \(h0, h1, h2, h3, h4, h5, h6, h7, \.\.\.\)"):
        _check_division(13, 13, agents(*(f"h{number}" for number in range(12))))


def test_agents_of_one_machine_stand_for_any_number_of_hosts() -> None:
    _check_division(4, 8, agents("h", elsewhere=False))
    _check_division(4, 8, agents("h~0", "h~1", elsewhere=False))
    _check_division(None, 5, agents("h~0", "h~1", elsewhere=False))
    with pytest.raises(UsageError, match="hosts=3 cannot be divided among the 2 hosts of the engine"):
        _check_division(3, 6, agents("h~0", "h~1", elsewhere=False))
