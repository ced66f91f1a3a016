"""Arguments of its own for each rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.mesh.by_rank import _Reduction, arguments_by_rank
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import Shape
from meshrt.wire.addresses import HostAddress, MeshAddress
from meshrt.wire.frames import Frame
from meshrt.wire.messages import RESULT

SHAPE = Shape.from_extent({"dp": 2, "tp": 2})
TARGET = Target("m", "t", MeshAddress((HostAddress(0, 0, b"/x"),), 4), SHAPE, SHAPE, lambda *_: ("", 0))
DRIVER: Any = SimpleNamespace(followers=())


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


def test_a_reduction_is_owed_by_all_ranks_until_it_is_done() -> None:
    """The end of any of them may come back as its error: no wait for it is told of that end as of something else."""
    call = _Reduction(DRIVER, TARGET.only(0), TARGET.only(1), "step")
    assert [call.owed_by("m", rank) for rank in range(4)] == [False, True, False, False]
    whole = _Reduction(DRIVER, TARGET.only(0), TARGET, "step")
    assert all(whole.owed_by("m", rank) for rank in range(4)) and not whole.owed_by("other", 0)
    whole.deliver(0, Frame(RESULT, [0, None], b""))
    assert not any(whole.owed_by("m", rank) for rank in range(4))
