"""How a script's device mesh calls the dimensions of its ranks."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.collectives.dimensions import dimensions_of
from meshrt.collectives.facts import GroupFacts
from meshrt.ranks import fold_ranks
from meshrt.selection import Shape

WORLD = GroupFacts("0", "default_pg", "0-7")


def groups_of(sizes: dict[str, int], rank: int) -> list[GroupFacts]:
    """What a device mesh makes for one of its ranks."""
    shape = Shape.from_extent(sizes)
    here = shape.coordinates(rank)
    found = []
    for name in sizes:
        others = {label: index for label, index in here.items() if label != name}
        members = [each for each in shape.ndslice if others.items() <= shape.coordinates(each).items()]
        found.append(GroupFacts(f"{name}{rank}", name, fold_ranks(members), dimension=True))
    return found


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_every_rank_finds_the_mesh(sizes: list[int], data: st.DataObject) -> None:
    made = dict(zip(("pp", "dp", "cp", "tp"), sizes, strict=False))
    count = math.prod(sizes)
    groups = [WORLD, *groups_of(made, data.draw(st.integers(0, count - 1)))]
    assert dimensions_of(groups, count) == made


def test_of_several_meshes_the_first_one_with_all_ranks_counts() -> None:
    part = groups_of({"node": 2, "gpu": 2}, 1)  # of ranks 0-3 alone
    groups = [*part, *groups_of({"dp": 4, "tp": 2}, 1), *groups_of({"rows": 8}, 1)]
    assert dimensions_of(groups, 8) == {"dp": 4, "tp": 2}


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [WORLD],
        groups_of({"dp": 2, "tp": 2}, 0),  # not all ranks
        list(reversed(groups_of({"dp": 4, "tp": 2}, 0))),  # not row by row
        [GroupFacts("1", "a b", "0-7", dimension=True)],  # not a name
        [GroupFacts("1", "dp", "0-7")],  # of a user's own
    ],
)
def test_no_mesh_of_all_ranks(groups: list[GroupFacts]) -> None:
    assert dimensions_of(groups, 8) is None


def test_one_name_twice_is_no_mesh() -> None:
    groups = [GroupFacts(str(index), "dp", text, dimension=True) for index, text in enumerate(("0,4", "0-3"))]
    assert dimensions_of(groups, 8) is None
    named = [GroupFacts(str(index), name, text, dimension=True) for index, (name, text) in enumerate(
        zip("ab", ("0,4", "0-3"), strict=True))]  # fmt: skip
    assert dimensions_of(named, 8) == {"a": 2, "b": 4}
    assert all(dimensions_of(list(each), 8) is None for each in itertools.combinations(named, 1))
