"""``ValueMesh``: values in the shape of the mesh that was called."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import Extent, Shape
from tests.support.folded import parse_folded

SHAPE = Shape.from_extent(Extent(("hosts", "gpus"), (2, 3)))


@pytest.fixture
def values() -> ValueMesh[str]:
    return ValueMesh(SHAPE, list("abcdef"))


def test_items_values_and_len(values: ValueMesh[str]) -> None:
    assert values.values() == list("abcdef") and len(values) == 6
    assert [(dict(point), point.rank, value) for point, value in values.items()][4] == ({"hosts": 1, "gpus": 1}, 4, "e")
    assert [value for _, value in values] == values.values()
    values.values().clear()
    assert len(values.values()) == 6


def test_item_needs_every_dimension(values: ValueMesh[str]) -> None:
    assert values.item(gpus=2, hosts=1) == "f"
    with pytest.raises(KeyError, match="'hosts' is missing"):
        values.item(gpus=1)
    with pytest.raises(KeyError, match=r"extra dimensions: \['z'\]"):
        values.item(hosts=0, gpus=0, z=1)
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"gpus={index} is outside"):
            values.item(hosts=0, gpus=index)


def test_get_by_rank(values: ValueMesh[str]) -> None:
    assert values.get(5) == "f"
    for rank in (6, -1):
        with pytest.raises(IndexError, match=f"rank {rank} is out of range"):
            values.get(rank)


def test_slices_of_slices_count_from_zero(values: ValueMesh[str]) -> None:
    column = values.slice(gpus=slice(1, 3)).slice(gpus=1)
    assert column.values() == ["c", "f"] and column.get(1) == "f"
    assert [dict(point) for point, _ in column.items()] == [{"hosts": 0}, {"hosts": 1}]
    assert values.flatten("rank").item(rank=4) == "e"
    assert values.select("hosts=1").values() == ["d", "e", "f"]
    assert values.slice(hosts=1, gpus=0).item() == "d"


def test_the_number_of_values_must_fit() -> None:
    with pytest.raises(ValueError, match="needs 6 values, not 5"):
        ValueMesh(SHAPE, range(5))
    with pytest.raises(ValueError, match="no value for ranks 1-2,5"):
        ValueMesh.from_indexed(SHAPE, [(0, "a"), (4, "b"), (3, "c")])
    assert ValueMesh.from_indexed(SHAPE, [(rank, rank) for rank in (5, 4, 3, 2, 1, 0)]).values() == list(range(6))


def test_it_can_be_pickled(values: ValueMesh[str]) -> None:
    again = pickle.loads(pickle.dumps(values.slice(hosts=1)))
    assert again.values() == ["d", "e", "f"] and again.sizes == {"gpus": 3}


def test_repr_folds_equal_values_over_sets_of_ranks() -> None:
    shape = Shape.from_extent(Extent(("n",), (8,)))
    assert repr(ValueMesh(shape, [0, 1, 0, 0, 1, 0, 2, 0])) == "ValueMesh{n=8}:\n  [0,2-3,5,7] 0\n  [1,4] 1\n  [6] 2"
    arrays = ValueMesh(shape, [np.zeros(2)] * 7 + [np.ones(2)])
    assert repr(arrays) == "ValueMesh{n=8}:\n  [0-6] array([0., 0.])\n  [7] array([1., 1.])"
    assert "[0-7] nan" in repr(ValueMesh(shape, [float("nan")] * 8))


def test_repr_is_bounded() -> None:
    shape = Shape.from_extent(Extent(("n",), (100,)))
    text = repr(ValueMesh(shape, [str(rank) + "x" * 5000 for rank in range(100)]))
    assert len(text) < 12_000 and "... 80 more ranks, 80 more values" in text and "characters)" in text


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_repr_names_every_rank_once(numbers: list[int]) -> None:
    lines = repr(ValueMesh(Shape.from_extent(Extent(("n",), (len(numbers),))), numbers)).splitlines()[1:]
    found = {}
    for line in lines:
        ranks, _, value = line.strip().removeprefix("[").partition("] ")
        found.update({rank: int(value) for rank in parse_folded(ranks)})
    assert found == dict(enumerate(numbers))


def test_reduce_combines_in_rank_order_all_or_over_dimensions(values: ValueMesh[str]) -> None:
    assert values.reduce(lambda left, right: left + right) == values.sum() == "abcdef"
    by_host = values.reduce(lambda left, right: left + right, "gpus")
    assert by_host.values() == ["abc", "def"] and by_host.sizes == {"hosts": 2}
    assert values.sum("hosts").values() == ["ad", "be", "cf"]
    everything = values.sum(["gpus", "hosts"])
    assert everything.values() == ["abcdef"] and everything.sizes == {}
    assert (values.max(), values.min(), values.max("hosts").values()) == ("f", "a", ["d", "e", "f"])
    assert values.slice(gpus=1).min("hosts").item() == "b"
    with pytest.raises(KeyError, match=r"there is no dimension 'tp' in {hosts=2,gpus=3}"):
        values.sum("tp")


def test_numpy_stacks_along_the_dimensions_of_the_mesh() -> None:
    assert ValueMesh(SHAPE, range(6)).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    stacked = ValueMesh(SHAPE, [np.full((4, 5), rank) for rank in range(6)]).slice(hosts=1).numpy()
    assert stacked.shape == (3, 4, 5) and stacked[:, 0, 0].tolist() == [3, 4, 5]
    assert ValueMesh(SHAPE, range(6)).slice(hosts=1, gpus=0).numpy().tolist() == 3
    uneven = ValueMesh(SHAPE, [np.zeros(2 if rank in (1, 4) else 3) for rank in range(6)])
    with pytest.raises(ValueError, match=r"ranks 0,2-3,5: \(3,\); ranks 1,4: \(2,\)"):
        uneven.numpy()


def test_html_folds_and_escapes_as_repr_does() -> None:
    shape = Shape.from_extent(Extent(("n",), (3,)))
    text = ValueMesh(shape, ["<b>", "<b>", "1e3"])._repr_html_()
    assert "ValueMesh{n=3}" in text and "<b>" not in text
    assert re.findall("<td>(.*?) *</td>", text) == ["0-1", "&#x27;&lt;b&gt;&#x27;", "2", "&#x27;1e3&#x27;"]
    many = ValueMesh(Shape.from_extent(Extent(("n",), (100,))), range(100))._repr_html_()
    assert many.count("<td>") == 40 and many.endswith("<p>... 80 more ranks, 80 more values</p>")
