"""Which process groups a rank tells of."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.collectives.facts import GroupsMade
from meshrt.collectives.reports import GroupReports


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
