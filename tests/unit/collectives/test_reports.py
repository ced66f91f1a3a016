"""How a script's device mesh calls the dimensions of its ranks."""

from __future__ import annotations

import itertools
import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.collectives.facts import GroupFacts, GroupsMade
from meshrt.collectives.reports import GroupReports, dimensions_of
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


class Group:
    """A process group of torch."""

    def __init__(self, name: str) -> None:
        self.group_name = self.group_desc = name

    def rank(self) -> int:
        return 0

    def _get_sequence_number_for_group(self) -> int:
        return 0


class Services:
    """As much of a rank's services as is used where no script runs."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def report(self, report: object) -> None:
        self.told.append(report)

    def actors(self) -> list[object]:
        return []


def test_groups_are_told_when_they_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are as many as before, and where there are none any more."""
    services = Services()
    reports = GroupReports(cast(Any, services))
    module = ModuleType("torch.distributed.distributed_c10d")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def told(*names: str) -> list[object]:
        groups = {Group(name): ("gloo", None) for name in names}
        kept.append(groups)  # so that no other one gets the same id
        default = next(iter(groups), None)
        world = SimpleNamespace(default_pg=default, pg_map=groups, pg_group_ranks=dict.fromkeys(groups, (0, 1)))
        monkeypatch.setattr(module, "_world", world, raising=False)
        services.told.clear()
        reports.pulse()
        found = list(services.told)
        reports.pulse()
        assert services.told == found
        return found

    kept: list[object] = []
    assert told() == []
    assert told("world", "dp") == [GroupsMade(["dp", "world"])]
    assert told("world", "tp") == [GroupsMade(["tp", "world"])]
    assert told() == [GroupsMade([])]
