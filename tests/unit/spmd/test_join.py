"""Which program a process joins, and with which sizes."""

from __future__ import annotations

import os

import pytest

from meshrt.errors import UsageError
from meshrt.spmd.join import _sizes, _spec
from meshrt.spmd.place import Place

PLACE = Place("torchrun", 5, 8, 1, 4, "job")


def test_sizes() -> None:
    assert _sizes(None, None) == {"n": 1}
    assert _sizes(4, None) == {"n": 4}
    assert _sizes({"dp": 2, "tp": 4}, PLACE) == {"dp": 2, "tp": 4}
    assert _sizes(None, PLACE) == {"hosts": 2, "gpus": 4}


@pytest.mark.parametrize("mesh", [0, {}, {"n": 0}, {"n": True}, {"n": "1"}])
def test_sizes_that_are_none(mesh: object) -> None:
    with pytest.raises(UsageError, match="expected a number of processes"):
        _sizes(mesh, None)  # type: ignore[arg-type]


def test_sizes_of_another_job() -> None:
    with pytest.raises(UsageError, match="does not have the 8 ranks that torchrun has started"):
        _sizes(4, PLACE)


def test_processes_of_one_parent_join_one_program() -> None:
    """If they say the same; one that is alone has its own."""
    first, again = (_spec("worker", {"n": 4}, None, alone=False) for _ in range(2))
    assert first == again and first.parent == os.getpid()
    others = [
        _spec("other", {"n": 4}, None, alone=False),
        _spec("worker", {"n": 5}, None, alone=False),
        _spec("worker", {"n": 4}, None, alone=True),
    ]
    assert first.meeting not in {other.meeting for other in others}


def test_below_a_launcher_it_is_the_program_of_the_job() -> None:
    found = _spec("worker", {"hosts": 2, "gpus": 4}, PLACE, alone=False)
    assert (found.meeting, found.host, found.hosts) == (PLACE.name, 1, 2)
