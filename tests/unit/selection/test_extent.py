"""Extent and Point: real mappings, and rank and point as inverses."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given

from meshrt.selection import Extent, Point
from tests.strategies import extents

__all__: list[str] = []

EXTENT = Extent(["hosts", "gpus"], [2, 4])


@given(extents())
def test_rank_and_point_invert(extent: Extent) -> None:
    seen = set()
    for rank in range(extent.nelements):
        point = extent.point(rank)
        assert point.rank == rank
        assert extent.rank_of(point) == rank
        assert all(0 <= point[label] < size for label, size in extent.items())
        seen.add(tuple(point.values()))
    assert len(seen) == extent.nelements


def test_row_major() -> None:
    assert [tuple(EXTENT.point(rank).values()) for rank in (0, 1, 4, 7)] == [(0, 0), (0, 1), (1, 0), (1, 3)]


@pytest.mark.parametrize("mapping", [EXTENT, EXTENT.point(6)])
def test_is_a_real_mapping(mapping: Mapping[str, int]) -> None:
    assert isinstance(mapping, Mapping)
    assert list(mapping) == list(mapping.keys()) == ["hosts", "gpus"]
    assert dict(mapping) == dict(**mapping) == dict(mapping.items()) == mapping
    assert len(mapping) == 2
    assert "gpus" in mapping
    assert "foo" not in mapping
    assert mapping.get("foo", 9) == 9
    with pytest.raises(KeyError, match=r"no dimension 'foo' in \{hosts: 2, gpus: 4\}"):
        mapping["foo"]


def test_extent_facts() -> None:
    assert EXTENT.labels == ("hosts", "gpus")
    assert EXTENT.sizes == (2, 4)
    assert EXTENT.nelements == 8
    assert EXTENT["gpus"] == 4
    assert str(EXTENT) == "{hosts: 2, gpus: 4}"
    assert repr(EXTENT) == "Extent(('hosts', 'gpus'), (2, 4))"
    assert Extent([], []).nelements == 1
    assert Extent(["a", "b"], [0, 3]).nelements == 0


def test_point_facts() -> None:
    point = Point(rank=6, extent=EXTENT)
    assert str(point) == repr(point) == "{'hosts': 1/2, 'gpus': 2/4}"
    assert point.size("gpus") == 4
    assert point.extent is EXTENT
    assert point["hosts"] == 1
    with pytest.raises(KeyError):
        point.size("foo")
    assert str(Point(0, Extent([], []))) == "{}"


def test_order_counts_between_extents_but_not_for_dicts() -> None:
    turned = Extent(["gpus", "hosts"], [4, 2])
    assert turned != EXTENT
    assert Extent(["a", "b"], [2, 4]) != EXTENT
    assert turned == EXTENT.__class__(["gpus", "hosts"], (4, 2)) == {"hosts": 2, "gpus": 4}
    assert EXTENT.point(1) != turned.point(1)
    assert EXTENT.point(0) != EXTENT
    assert EXTENT != ("hosts", "gpus")


@pytest.mark.parametrize("value", [EXTENT, EXTENT.point(3)])
def test_hash_and_pickle(value: Extent | Point) -> None:
    assert {value: 1}[pickle.loads(pickle.dumps(value))] == 1
    assert len({EXTENT.point(3), EXTENT.point(4), Extent(["a"], [8]).point(3)}) == 3


@pytest.mark.parametrize(
    ("labels", "sizes", "error"),
    [
        (["a", "a"], [2, 3], ValueError),
        (["a"], [2, 3], ValueError),
        (["a b"], [2], ValueError),
        (["1"], [2], ValueError),
        ([""], [2], ValueError),
        (["a"], [-1], ValueError),
        (["a"], [1.5], TypeError),
        ([1], [1], TypeError),
        ("ab", [2, 3], TypeError),
    ],
)
def test_illegal_extents(labels: list[str], sizes: list[int], error: type) -> None:
    with pytest.raises(error):
        Extent(labels, sizes)


@pytest.mark.parametrize(("rank", "error"), [(8, ValueError), (-1, ValueError), (1.0, TypeError), ("1", TypeError)])
def test_points_outside_are_refused_at_once(rank: int, error: type) -> None:
    with pytest.raises(error, match="rank"):
        Point(rank, EXTENT)
    with pytest.raises(error, match="rank"):
        EXTENT.point(rank)


def test_no_point_in_an_empty_extent() -> None:
    with pytest.raises(ValueError, match="0 ranks"):
        Extent(["a"], [0]).point(0)


@pytest.mark.parametrize(
    ("coordinates", "error", "text"),
    [
        ({"hosts": 1}, KeyError, "'gpus' is missing"),
        ({"hosts": 1, "gpus": 1, "z": 0}, KeyError, "no dimension 'z'"),
        ({"hosts": 2, "gpus": 0}, IndexError, "hosts=2 is outside"),
        ({"hosts": 0, "gpus": -1}, IndexError, "gpus=-1 is outside"),
        ({"hosts": 0, "gpus": "1"}, TypeError, "coordinate 'gpus' must be an integer"),
    ],
)
def test_rank_of_refuses(coordinates: dict[str, int], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        EXTENT.rank_of(coordinates)
