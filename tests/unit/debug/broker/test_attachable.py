"""What ``attach`` says of ranks that it does not take."""

from __future__ import annotations

import pytest

from meshrt.errors import MeshError
from tests.unit.debug.root_fakes import FakeRoot


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        ("five", "'five' is not a rank; expected its number or its coordinates: attach debugee 0, "
                 "or attach debugee hosts=0,gpus=0"),
        ("9", "rank 9 does not exist: there are 8 ranks"),
        ("0,1", "attach needs exactly one rank; '0,1' selects 2"),
        ("blocked", "this selects no rank of {hosts=2,gpus=4}"),
        ("3", "debugee rank 3 is not stopped; to stop it: "),
    ],
)  # fmt: skip
def test_ranks_that_cannot_be_attached(rank: str, said: str) -> None:
    root = FakeRoot()
    root.stop(0)
    with pytest.raises(MeshError) as caught:
        root.ask(root.terminal(), "debug.attach", actor="debugee", rank=rank)
    assert str(caught.value).startswith(said)


def test_a_state_that_one_rank_has_denotes_it() -> None:
    root = FakeRoot()
    root.stop(5)
    assert root.ask(root.terminal(), "debug.attach", actor="debugee", rank="stopped")["rank"] == 5
