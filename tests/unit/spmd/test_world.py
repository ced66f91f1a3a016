"""Dimensions of ranks as they are typed, and the variables of a rank."""

from __future__ import annotations

import pytest

from meshrt.errors import UsageError
from meshrt.spmd.world import World, dimensions


@pytest.mark.parametrize(
    ("ranks", "text", "sizes"),
    [
        (8, "", {"hosts": 1, "gpus": 8}),
        (None, "dp=2,tp=4", {"dp": 2, "tp": 4}),
        (8, "dp=2, tp=4", {"dp": 2, "tp": 4}),
        (1, "x=1", {"x": 1}),
    ],
)
def test_dimensions_in_the_order_in_which_they_are_typed(ranks: int | None, text: str, sizes: dict[str, int]) -> None:
    assert list(dimensions(ranks, text).items()) == list(sizes.items())


@pytest.mark.parametrize(
    ("ranks", "text", "why"),
    [
        (None, "dp", "'dp' is not a dimension; expected NAME=SIZE"),
        (None, "dp=", "'dp=' is not a dimension"),
        (None, "dp=0", "'dp=0' is not a dimension"),
        (None, "dp=²", "is not a dimension"),
        (None, "2=dp", "'2=dp' is not a dimension"),
        (None, "dp=2,", "'' is not a dimension"),
        (None, "dp=2,dp=2", "dp is given twice"),
        (4, "dp=2,tp=3", "--mesh dp=2,tp=3 has 6 ranks, but -n is 4"),
    ],
)
def test_other_texts_are_refused(ranks: int | None, text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        dimensions(ranks, text)
    assert why in str(caught.value)


def test_the_variables_of_a_rank_are_those_of_torchrun() -> None:
    made = World(4, 29500, "job", attempt=1, max_restarts=3).variables(2, {})
    assert made["RANK"] == made["LOCAL_RANK"] == "2" and made["WORLD_SIZE"] == made["LOCAL_WORLD_SIZE"] == "4"
    assert (made["MASTER_ADDR"], made["MASTER_PORT"]) == ("127.0.0.1", "29500")
    assert (made["TORCHELASTIC_RESTART_COUNT"], made["TORCHELASTIC_MAX_RESTARTS"]) == ("1", "3")
    assert made["OMP_NUM_THREADS"] == "1"


def test_what_the_user_has_set_for_all_stays() -> None:
    given = {"OMP_NUM_THREADS": "4", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    made = World(2, 1, "job").variables(0, given)
    assert {**given, **made} == {**made, **given}
    assert "OMP_NUM_THREADS" not in World(1, 1, "job").variables(0, {})
