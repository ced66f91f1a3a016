"""Hosts as a mesh: which ranks stand for them."""

from __future__ import annotations

import pytest

from meshrt.errors import UsageError
from meshrt.mesh.hosts import first_ranks
from meshrt.selection import Shape
from meshrt.wire.addresses import HostAddress, MeshAddress

ADDRESS = MeshAddress(tuple(HostAddress(number, number, b"/d", (("n", number),)) for number in (1, 2, 3)), 12)


def test_the_dimension_hosts_says_which_ranks_are_on_one() -> None:
    shape = Shape.from_extent({"dp": 2, "hosts": 2, "gpus": 3})
    found = first_ranks(shape, ADDRESS.host_of)
    assert (found.labels, found.ranks()) == (("hosts",), [0, 3])


@pytest.mark.parametrize(("low", "high", "expected"), [(0, 12, [0, 4, 8]), (4, 12, [4, 8]), (4, 8, [4]), (7, 8, [7])])
def test_without_it_there_is_one_for_each_agent(low: int, high: int, expected: list[int]) -> None:
    found = first_ranks(Shape.from_extent({"n": 12}).select("n", slice(low, high)), ADDRESS.host_of)
    assert found.ranks() == expected and found.labels == (("hosts",) if len(expected) > 1 else ())


def test_a_view_whose_hosts_are_not_evenly_spaced_has_none() -> None:
    with pytest.raises(UsageError, match="10 ranks on 3 hosts: not as many on each"):
        first_ranks(Shape.from_extent({"n": 12}).select("n", slice(2, 12)), ADDRESS.host_of)
