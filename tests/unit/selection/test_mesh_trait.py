"""MeshTrait and the functions behind it: every row of the reference's behaviour on {hosts: 2, gpus: 4}."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest
from hypothesis import given

from meshrt.selection import Extent, MeshTrait, Shape, Slice
from tests.strategies import shapes

__all__: list[str] = []


class Mesh(MeshTrait):
    """The least that is a mesh."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @property
    def _shape(self) -> Shape:
        return self.shape

    def _with_shape(self, shape: Shape) -> Self:
        return type(self)(shape)


MESH = Mesh(Shape.from_extent({"hosts": 2, "gpus": 4}))
Call = Callable[[Mesh], Any]


# Each row: what is called, then dims, offset and strides of the result.
ACCEPTED: list[tuple[Call, str, int, tuple[int, ...]]] = [
    (lambda m: m.slice(), "{hosts=2,gpus=4}", 0, (4, 1)),
    (lambda m: m.slice(hosts=1), "{gpus=4}", 4, (1,)),
    (lambda m: m.slice(gpus=3, hosts=1), "{}", 7, ()),
    (lambda m: m.slice(gpus=slice(1, 3)), "{hosts=2,gpus=2}", 1, (4, 1)),
    (lambda m: m.slice(gpus=slice(None, None, 2)), "{hosts=2,gpus=2}", 0, (4, 2)),
    (lambda m: m.slice(gpus=slice(-2, None)), "{hosts=2,gpus=2}", 2, (4, 1)),
    (lambda m: m.slice(gpus=slice(0, 100)), "{hosts=2,gpus=4}", 0, (4, 1)),
    (lambda m: m.slice(gpus=True), "{hosts=2}", 1, (4,)),
    (lambda m: m.slice(gpus=slice(0, 4, 3)), "{hosts=2,gpus=2}", 0, (4, 3)),  # the reference refuses this one
    (lambda m: m.slice(**m.extent.point(6)), "{}", 6, ()),
    (lambda m: m.split(hosts=("a", "b"), a=2), "{a=2,b=1,gpus=4}", 0, (4, 4, 1)),
    (lambda m: m.split(gpus=("tp", "cp"), cp=2), "{hosts=2,tp=2,cp=2}", 0, (4, 2, 1)),
    (lambda m: m.split(gpus=["tp", "cp"], cp=2), "{hosts=2,tp=2,cp=2}", 0, (4, 2, 1)),
    (lambda m: m.split(gpus=("tp", "cp"), tp=2, cp=2), "{hosts=2,tp=2,cp=2}", 0, (4, 2, 1)),
    (lambda m: m.split(gpus=("gpus", "cp"), cp=2), "{hosts=2,gpus=2,cp=2}", 0, (4, 2, 1)),
    (lambda m: m.slice(hosts=slice(0, 1)).split(hosts=()), "{gpus=4}", 0, (1,)),
    (lambda m: m.split(), "{hosts=2,gpus=4}", 0, (4, 1)),
    (lambda m: m.split(hosts=("a", "b"), gpus=("c", "d"), b=1, d=2), "{a=2,b=1,c=2,d=2}", 0, (4, 4, 2, 1)),
    (lambda m: m.slice(gpus=slice(0, 4, 2)).split(gpus=("a", "b"), a=2), "{hosts=2,a=2,b=1}", 0, (4, 2, 2)),
    (lambda m: m.flatten("rank"), "{rank=8}", 0, (1,)),
    (lambda m: m.flatten("gpus"), "{gpus=8}", 0, (1,)),
    (lambda m: m.slice(hosts=1).flatten("r"), "{r=4}", 4, (1,)),
    (lambda m: m.slice(hosts=slice(0, 1)).flatten("r"), "{r=4}", 0, (1,)),
    (lambda m: m.slice(hosts=1, gpus=2).flatten("r"), "{r=1}", 6, (1,)),
    (lambda m: m.rename(), "{hosts=2,gpus=4}", 0, (4, 1)),
    (lambda m: m.rename(hosts="dp", gpus="tp"), "{dp=2,tp=4}", 0, (4, 1)),
    (lambda m: m.rename(hosts="gpus", gpus="hosts"), "{gpus=2,hosts=4}", 0, (4, 1)),
    (lambda m: m.select("hosts=1, gpus=::2"), "{gpus=2}", 4, (2,)),
]


@pytest.mark.parametrize(("call", "dims", "offset", "strides"), ACCEPTED)
def test_accepted(call: Call, dims: str, offset: int, strides: tuple[int, ...]) -> None:
    made = call(MESH)
    assert isinstance(made, Mesh)
    assert (str(made.shape), made.shape.ndslice.offset, made.shape.ndslice.strides) == (dims, offset, strides)
    # What is derived without checks is what a checked construction gives.
    ndslice = made.shape.ndslice
    again = Slice(offset=ndslice.offset, sizes=ndslice.sizes, strides=ndslice.strides)
    assert Shape(made.shape.labels, again) == made.shape


REFUSED: list[tuple[Call, type[Exception], str]] = [
    (lambda m: m.slice(gpus=slice(2, 2)), ValueError, "empty range"),
    (lambda m: m.slice(gpus=slice(4, 8)), ValueError, "dimension 'gpus' of size 4"),
    (lambda m: m.slice(gpus=slice(3, 0, -1)), ValueError, "must be positive"),
    (lambda m: m.slice(gpus=slice(0, 4, 0)), ValueError, "slice step cannot be zero"),
    (lambda m: m.slice(gpus=-1), IndexError, r"index out of range: gpus=-1, but gpus has size 4 in {hosts=2,gpus=4}"),
    (lambda m: m.slice(gpus=4), IndexError, "index out of range: gpus=4"),
    (lambda m: m.slice(gpus=1.0), TypeError, r"'gpus' is sliced with an integer or a slice, got 1\.0"),
    (lambda m: m.slice(gpus=[0, 2]), TypeError, r"'gpus' is sliced with an integer or a slice, got \[0, 2\]"),
    (lambda m: m.slice(gpus="1"), TypeError, "'gpus' is sliced with an integer or a slice, got '1'"),
    (lambda m: m.slice(gpus=range(2)), TypeError, r"'gpus' is sliced with an integer or a slice, got range\(0, 2\)"),
    (lambda m: m.slice(foo=1), TypeError, "Shape does not have dimension labeled 'foo'"),
    (lambda m: m.slice(gpu=1), TypeError, "did you mean 'gpus'"),
    (lambda m: m.slice(gpus=1).slice(gpus=0), TypeError, "Shape does not have dimension labeled 'gpus'"),
    (lambda m: m.split(gpus=("tp", "cp"), tp=3, cp=2), ValueError, r"'gpus' of size 4 is not .* sizes \(3, 2\)"),
    (lambda m: m.split(gpus=("tp", "cp"), tp=3), ValueError, r"\('tp', 'cp'\) with sizes \(3, '\?'\)"),
    (lambda m: m.split(gpus=("tp", "cp"), tp=1, cp=2), ValueError, r"with sizes \(1, 2\)"),
    (lambda m: m.split(gpus=("tp", "cp")), ValueError, r"Cannot infer size of \('tp', 'cp'\) because tp and cp"),
    (lambda m: m.split(gpus="tp"), ValueError, "expected a sequence of dimensions to split 'gpus' into, but got 'tp'"),
    (lambda m: m.split(gpus=4), TypeError, "expected a sequence of dimensions to split 'gpus' into, but got 4"),
    (lambda m: m.split(foo=("a", "b"), a=2), ValueError, "'foo' is not an existing dim of {hosts=2,gpus=4}"),
    (lambda m: m.rename(foo="x"), ValueError, "'foo' is not an existing dim of {hosts=2,gpus=4}"),
    (lambda m: m.split(gpus=("tp", "cp"), cp=2, zz=2), ValueError, r"unused size constraints: \('zz',\)"),
    (lambda m: m.split(gpus=("hosts", "cp"), cp=2), ValueError, "Duplicate dimension name 'hosts'"),
    (lambda m: m.rename(hosts="gpus"), ValueError, "Duplicate dimension name 'gpus'"),
    (lambda m: m.split(gpus=("a", "a"), a=2), ValueError, "Duplicate dimension name 'a'"),  # a KeyError leaks there
    (lambda m: m.split(gpus=()), ValueError, r"not evenly divided by \(\) with sizes \(\)"),
    (lambda m: m.split(gpus=("tp", "cp"), cp=0), ValueError, "cp=0: .* at least 1"),  # ZeroDivisionError there
    (lambda m: m.split(gpus=("tp", "cp"), cp=-2), ValueError, "cp=-2: .* at least 1"),  # OverflowError there
    (lambda m: m.split(gpus=("tp", "cp"), cp=2.0), ValueError, "'cp' is not an existing dim"),
    (lambda m: m.split(gpus=("tp", "c p"), tp=2), ValueError, "'c p'"),
    (lambda m: m.split(gpus=("tp", 3), tp=2), TypeError, "must be a string, got 3"),
    (lambda m: m.slice(gpus=1).flatten("r"), ValueError, "cannot flatten sparse mesh"),
    (lambda m: m.slice(gpus=slice(0, 2)).flatten("r"), ValueError, "cannot flatten sparse mesh"),
    (lambda m: m.slice(gpus=slice(0, 1)).flatten("r"), ValueError, "cannot flatten sparse mesh"),
    (lambda m: m.flatten("a b"), ValueError, "'a b'"),
    (lambda m: m.rename(hosts=3), TypeError, "must be a string, got 3"),
    (lambda m: m.size("foo"), KeyError, "no dimension 'foo' in {hosts: 2, gpus: 4}"),
    (lambda m: m.size(["gpus", "foo"]), KeyError, "'foo'"),
    (lambda m: iter(m), TypeError, "not iterable"),  # type: ignore[call-overload]
    (lambda m: m[0], TypeError, "not subscriptable"),  # type: ignore[index]
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_refused(call: Call, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call(MESH)
    assert type(caught.value) is error


def test_sizes() -> None:
    assert MESH.size() == len(MESH) == 8
    assert MESH.size("gpus") == 4
    assert MESH.size(["hosts", "gpus"]) == 8
    assert MESH.size([]) == 1
    assert MESH.size(["gpus", "gpus"]) == 16
    assert MESH.sizes == {"hosts": 2, "gpus": 4}
    assert type(MESH.sizes) is dict
    assert MESH.extent == Extent(["hosts", "gpus"], [2, 4])


def test_no_dimensions() -> None:
    one = MESH.slice(hosts=1, gpus=2)
    assert len(one) == one.size() == 1
    assert one.sizes == {}
    assert one.extent == Extent([], [])


def test_a_dimension_may_be_named_self() -> None:
    mesh = Mesh(Shape.from_extent({"self": 2}))
    assert mesh.slice(self=1).shape.ranks() == [1]
    assert mesh.rename(self="a").sizes == {"a": 2}


@given(shapes())
def test_what_keeps_ranks_keeps_them_in_order(shape: Shape) -> None:
    mesh = Mesh(shape)
    renamed = mesh.rename(**{label: label + "_" for label in shape.labels})
    assert renamed.shape.ranks() == shape.ranks()
    for label, size in shape.extent.items():
        divided = mesh.split(**{label: ("x", "y"), "y": next(n for n in (3, 2, 1) if size % n == 0)})
        assert divided.shape.ranks() == shape.ranks()
        taken = [rank for index in range(size) for rank in mesh.slice(**{label: index}).shape.ranks()]
        assert sorted(taken) == sorted(shape.ranks())


@given(shapes())
def test_flatten_is_accepted_exactly_for_runs_of_ranks(shape: Shape) -> None:
    ranks = shape.ranks()
    if ranks == list(range(ranks[0], ranks[0] + len(ranks))):
        assert Mesh(shape).flatten("r").shape.ranks() == ranks
    else:
        with pytest.raises(ValueError, match="sparse"):
            Mesh(shape).flatten("r")
