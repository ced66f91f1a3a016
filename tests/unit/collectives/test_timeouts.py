"""Time-outs of process groups while a rank is stopped, on stand-ins for torch."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.collectives import timeouts
from meshrt.collectives.timeouts import HELD, CollectiveLimit, CollectiveLimits, words
from meshrt.hooks.table import Hooks

MODULE = "torch.distributed.distributed_c10d"


class ProcessGroupGloo:
    def __init__(self, seconds: float) -> None:
        self.options = SimpleNamespace(_timeout=timedelta(seconds=seconds))

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.options._timeout = timeout

    @property
    def seconds(self) -> float:
        return float(self.options._timeout.total_seconds())


class ProcessGroupNCCL(ProcessGroupGloo):
    pass


class ProcessGroupWrapper:
    """Has none of what is used."""


class Changed(ProcessGroupGloo):
    def _set_default_timeout(self, timeout: timedelta) -> None:
        raise RuntimeError("another version of torch")


Changed.__name__ = "ProcessGroupGloo"


class Group:
    """A process group with one backend for two kinds of devices."""

    def __init__(self, backend: Any, name: str = "default_pg", size: int = 2) -> None:
        self.group_name, self.group_desc, self._device_types = "0", name, ["cuda", "cpu"]
        self._backend, self._size = backend, size

    def size(self) -> int:
        return self._size

    def _get_backend(self, device: str) -> Any:
        return self._backend


def torch(monkeypatch: pytest.MonkeyPatch, *groups: Group) -> None:
    world = SimpleNamespace(pg_map=dict.fromkeys(groups, ("gloo", None)))
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_world=world))


def test_without_torch_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    limits = CollectiveLimits()
    limits.hold(True)
    assert limits.read() == [] and MODULE not in sys.modules
    limits.hold(False)


def test_gloo_is_held_and_put_back_and_nccl_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    gloo, nccl, alone = ProcessGroupGloo(1800), ProcessGroupNCCL(600), ProcessGroupGloo(5)
    torch(monkeypatch, Group(gloo), Group(nccl, "dp"), Group(alone, "me", size=1))
    limits, said = (
        CollectiveLimits(),
        [CollectiveLimit("dp", "nccl", 600, False), CollectiveLimit("", "gloo", 1800, True)],
    )
    assert limits.read() == said
    for _ in range(2):
        limits.hold(True)
        assert (gloo.options._timeout, nccl.seconds, alone.seconds) == (HELD, 600, 5)
        assert limits.read() == said  # what the program has set
        limits.hold(False)
        assert (gloo.seconds, nccl.seconds) == (1800, 600)


def test_what_the_program_sets_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    gloo = ProcessGroupGloo(1800)
    torch(monkeypatch, Group(gloo))
    limits = CollectiveLimits()
    limits.hold(True)
    gloo._set_default_timeout(timedelta(seconds=7))
    limits.hold(False)
    assert gloo.seconds == 7


@pytest.mark.parametrize(
    "world", [None, SimpleNamespace(), SimpleNamespace(pg_map=3), SimpleNamespace(pg_map=[object()])]
)
def test_another_torch_is_left_alone(world: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_world=world))
    limits = CollectiveLimits()
    limits.hold(True)
    assert limits.read() == []
    limits.hold(False)


def test_one_surprise_leaves_out_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    gloo, changed = ProcessGroupGloo(1800), Changed(60)
    torch(monkeypatch, Group(ProcessGroupWrapper(), "wrapped"), Group(changed, "changed"), Group(gloo))
    limits = CollectiveLimits()
    limits.hold(True)
    assert (changed.seconds, gloo.options._timeout) == (60, HELD)
    limits.hold(False)
    assert (changed.seconds, gloo.seconds) == (60, 1800)


def test_a_rank_whose_first_ping_comes_during_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    gloo, hooks = ProcessGroupGloo(1800), Hooks()
    torch(monkeypatch, Group(gloo))
    monkeypatch.setattr(timeouts, "hooks", hooks)
    monkeypatch.setattr(timeouts, "limits", CollectiveLimits())
    timeouts.load(SimpleNamespace(held=lambda: True))
    assert gloo.options._timeout == HELD
    hooks.run(hooks.hold_changed, False)
    assert gloo.seconds == 1800
    hooks.run(hooks.hold_changed, True)
    hooks.run(hooks.program_lost)  # nobody resumes it any more
    assert gloo.seconds == 1800


def test_what_is_said_of_each_backend_is_the_group_that_gives_up_first() -> None:
    found = [
        CollectiveLimit("dp", "nccl", 600, False),
        CollectiveLimit("tp", "nccl", 900, False),
        CollectiveLimit("", "gloo", 1800, True),
    ]
    assert words(found, 10.2) == [
        "nccl, process group 'dp': ranks that already waited when this one stopped time out within 9 min 50 s; later "
        "waits time out after 10 min 0 s: meshrt does not suspend them",
        "gloo, the default process group: ranks that already waited when this one stopped time out within 29 min 50 s; "
        "later waits last until no rank is stopped",
    ]
    (nccl, _) = words(found, 700)
    assert "when this one stopped have timed out;" in nccl
