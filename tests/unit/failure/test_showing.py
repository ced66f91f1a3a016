"""What is shown of a failure beside its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import SelectionError
from meshrt.failure import files
from meshrt.failure.record import Reference
from meshrt.failure.showing import listing, of_rank, plain_listing, plain_of_rank
from meshrt.inspect import Stacks
from meshrt.selection import Shape
from tests.unit.failure.records import incident, raised, silent


def stacks_of(*ranks: int) -> dict[str, Any]:
    """Merged stacks of ranks that have not answered."""
    stacks = Stacks()
    stacks.expect("m", "train", Shape.from_extent({"n": 4}), ranks)
    return stacks.to_wire()


def test_whom_a_time_out_has_waited_for(tmp_path: Path) -> None:
    path = files.write(tmp_path, incident(silent((0, 1, 3), 3000, 3)))
    assert listing([path]) == (
        f"{path}\n  1 failure; root cause: trainer ranks 0-1,3 of train: did not answer trainer.step() within 3 s\n"
    )
    assert plain_listing([path])[0]["roots"][0]["ranks"] == [0, 1, 3]


def test_several_candidates_and_none(tmp_path: Path) -> None:
    for name in ("either", "unknown"):
        (tmp_path / name).mkdir()
    either = files.write(tmp_path / "either", incident(raised(0, 7, "KeyError"), raised(2, 9, cleaned_up=5)))
    unknown = files.write(tmp_path / "unknown", incident(raised(0, 1, "ActorError", about=Reference("x", "m", 2))))
    text = listing([either, unknown])
    assert "2 failures; root cause: AMBIGUOUS, one of 2: trainer rank 0 (n=0) on " in text
    assert "1 failure; root cause: not known\n" in text
    assert [each["ambiguous"] for each in plain_listing([either, unknown])] == [True, True]


def test_a_victim_has_its_cause() -> None:
    whole = incident(raised(0, 1), raised(2, 2, "ActorError", about=Reference("a0.1", "m", 0)))
    (record,) = plain_of_rank(whole, 2)["records"]
    assert record["cause"]["evidence"] == "carried" and record["cause"]["record"]["ranks"] == [0]
    assert plain_of_rank(whole, 0)["records"][0]["cause"] is None


def test_where_a_healthy_rank_stood() -> None:
    whole = incident(raised(0, 1), stacks=stacks_of(1, 2, 3))
    assert (
        of_rank(whole, 2) == "rank 2 of train (n=2) did not fail; where it was then:\n    1/1  2 (n=2): no answer yet\n"
    )
    (healthy,) = plain_of_rank(whole, 2)["did_not_fail"]
    assert (healthy["coordinates"], healthy["stacks"]["waiting"]["ranks"]) == ({"n": 2}, "2")


def test_a_healthy_rank_of_which_little_is_known() -> None:
    not_asked = incident(raised(0, 1), stacks_why="they had been asked just before")
    assert "where it was then is not known: they had been asked just before" in of_rank(not_asked, 2)
    damaged = incident(raised(0, 1), stacks={"meshes": [{"mesh_id": "m", "trees": 3}]})
    assert "not known" in of_rank(damaged, 2) and plain_of_rank(damaged, 2)["did_not_fail"][0]["stacks"] is None
    damaged.meshes[0].alive = (0, 1)
    assert of_rank(damaged, 2) == "rank 2 of train (n=2) did not fail: it had ended before\n"


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_is_none(rank: int) -> None:
    with pytest.raises(SelectionError, match=f"no mesh had a rank {rank} when it failed; expected one of 0-3 of train"):
        of_rank(incident(silent((0, 1), 5, 1)), rank)
