"""Records of what the root notices by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.errors import CallTimeout, RankPlace
from meshrt.failure.noticed import of_fate, of_silence, sharing, shortened
from meshrt.failure.record import Reference
from meshrt.hooks.fate import Fate
from meshrt.hooks.snapshot import MeshFacts
from meshrt.selection import Shape
from tests.unit.failure.records import raised

SHAPE = Shape.from_extent({"n": 4})
CALL: Any = SimpleNamespace(actor="trainer", endpoint="step", failing=False, done=lambda: False)
MESH = MeshFacts("m", "train", SHAPE, actors={"trainer": dict.fromkeys(range(4), SHAPE)}, incarnations={2: 3})


@pytest.mark.parametrize(
    ("fate", "kind", "blame"),
    [
        (Fate("died", exit_code=3), "exit", "worker"),
        (Fate("died", signal=11), "signal", "worker"),
        (Fate("died", signal=9, hint="out of memory: 3 GiB"), "signal", "platform"),
        (Fate("unborn", hint="no memory"), "unborn", "platform"),
    ],
)
def test_the_record_of_an_end_holds_its_fate(fate: Fate, kind: str, blame: str) -> None:
    record = of_fate("m", 2, fate, MESH, [CALL])
    assert (record.kind, record.blame, record.rank, record.coordinates) == (kind, blame, 2, {"n": 2})
    assert (record.actor, record.incarnation, record.waited_for) == ("trainer", 3, True)
    assert record.doing == ("trainer.step()",)
    assert record.fate == fate and record.headline == str(fate)


def test_an_end_after_which_the_rank_is_started_again_is_that_of_the_incarnation_before() -> None:
    assert of_fate("m", 2, Fate("died", restarts=True), MESH, []).incarnation == 2


def test_of_a_host_the_ranks_are_named_and_no_rank_has_failed_by_itself() -> None:
    record = of_fate("m", 2, Fate("host", host="node1"), MESH, [])
    assert (record.rank, record.ranks, record.actor, record.coordinates) == (-1, (2,), "", {})
    assert record.headline == "host node1 was lost with its 1 rank"


def test_of_a_mesh_that_is_forgotten_only_the_id_is_known() -> None:
    record = of_fate("m", 2, Fate("died", exit_code=1), None, [])
    assert (record.mesh_id, record.mesh, record.rank, record.coordinates) == ("m", "", 2, {})


def test_who_has_not_answered() -> None:
    places = [RankPlace("m", "trainer", rank, (("n", rank),), "node", 100 + rank) for rank in range(3)]
    one = of_silence(CallTimeout("trainer.step()", 4, places[:1], 4), "train")
    assert (one.rank, one.ranks, one.pid, one.coordinates) == (0, (0,), 100, {"n": 0})
    ended = of_silence(CallTimeout("trainer.step()", 4, places[:1], 4), "train", end="you interrupted")
    assert ended.headline == "had not answered trainer.step() after 4 s, when you interrupted"
    many = of_silence(CallTimeout("trainer.step()", 4, places, 4), "train")
    assert (many.rank, many.ranks, many.pid) == (-1, (0, 1, 2), 0)
    assert many.headline == "did not answer trainer.step() within 4 s" and many.high - many.low == 4_000_000_000


def test_of_many_failures_only_the_outlines_are_kept() -> None:
    end = Fate("died", log_tail=tuple(map(str, range(9))))
    record = shortened(of_fate("m", 2, end, MESH, []))
    assert record.fate is not None and list(record.fate.log_tail) == ["5", "6", "7", "8"]
    error = shortened(raised(0, 1)).exception
    assert error is not None and not any(frame.locals for frame in error.frames)


def test_records_that_are_alike_share_what_is_equal() -> None:
    first, second, other = raised(0, 1), raised(1, 2), raised(2, 3, message="worse", because=Reference("a0.1"))
    shared = sharing(second, first)
    assert shared == second and shared is not first
    assert shared.exception is first.exception and shared.host is first.host
    partly = sharing(other, first)
    assert partly == other and partly.exception is not None and first.exception is not None
    assert partly.exception.frames is first.exception.frames and partly.exception.message == "worse"
    assert sharing((1, "a", "b"), (1, "a")) == (1, "a", "b") and sharing((1,), (1, 2)) == (1,)
    assert sharing(True, 1) is True and sharing(None, first) is None
