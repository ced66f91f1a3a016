"""Arguments of its own for each rank."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.mesh.by_rank import arguments_by_rank
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import Shape
from meshrt.wire.addresses import HostAddress, MeshAddress

SHAPE = Shape.from_extent({"dp": 2, "tp": 2})
TARGET = Target("m", "t", MeshAddress((HostAddress(0, 0, b"/x"),), 4), SHAPE, SHAPE, lambda *_: ("", 0))


def test_each_rank_gets_one_value_of_each_column() -> None:
    rows = arguments_by_rank(TARGET, "step", (range(4), ValueMesh(SHAPE, "abcd")))
    assert rows == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ((), r"t.step.map\(\): expected one sequence, or more, with a value for each rank"),
        (([1, 2, 3],), r"argument 1 has 3 values; expected 4, one for each rank of {dp=2,tp=2}"),
        ((range(4), iter("abcde")), "argument 2 has 5 values; expected 4"),
        ((ValueMesh(SHAPE, range(4)).flatten("n"),), "argument 1 has the shape .*n.*, not {dp=2,tp=2}"),
    ],
)
def test_what_does_not_fit_is_refused(columns: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        arguments_by_rank(TARGET, "step", columns)
