"""What is said of work that the end of a mesh has cut off."""

from __future__ import annotations

from meshrt.mesh.cut import CutWork
from meshrt.wire.operations import CutOff


def told(calls: list[tuple[str, str]], waiting: int = 0, *, more: bool = False) -> CutOff:
    return CutOff(calls, waiting, more)


def test_nothing_is_said_where_nothing_was_cut() -> None:
    cut = CutWork("train")
    cut.told(0, told([]))
    assert cut.text(0.5, at_exit=True) == ""


def test_calls_are_named_with_their_ranks_and_those_that_waited_are_counted() -> None:
    cut = CutWork("train")
    for rank in (0, 1, 2):
        cut.told(rank, told([("trainer", "step")], rank))
    cut.told(5, told([("trainer", "step"), ("store", "flush")], 40, more=True))
    cut.killed(2)
    assert cut.text(0.5, at_exit=True).splitlines() == [
        "unfinished work of train was terminated 0.5 s after the end of the program",
        "  trainer.step() on ranks 0-2,5 (rank 2 killed: the interrupt had no effect)",
        "  store.flush() on rank 5",
        "  at least 43 calls that had not started, sent to ranks 1-2,5",
        "  to let calls finish: wait for them with get(), or give the mesh more time with stop(grace=SECONDS)",
    ]


def test_one_call_one_rank() -> None:
    cut = CutWork("train")
    cut.told(3, told([("trainer", "step")], 1))
    cut.killed(3)
    assert cut.text(2.0, at_exit=False).splitlines()[:3] == [
        "unfinished work of train was terminated 2 s after its stop()",
        "  trainer.step() on rank 3 (rank 3 killed: the interrupt had no effect)",
        "  1 call that had not started, sent to rank 3",
    ]


def test_ranks_that_could_tell_nothing_are_named() -> None:
    cut = CutWork("train")
    cut.killed(1)
    cut.killed(0)
    assert "  ranks 0-1: killed without an answer; the process was stopped, or C code held its GIL" in cut.text(
        0.5, at_exit=True
    )


def test_a_rank_tells_once() -> None:
    """What a rank sends again and again takes no memory of the script."""
    cut = CutWork("train")
    cut.told(0, told([("trainer", "step")]))
    for number in range(20):
        cut.told(0, told([("trainer", f"step{number}")], number))
    assert len(cut.text(0.5, at_exit=True).splitlines()) == 3


def test_many_endpoints_are_counted() -> None:
    cut = CutWork("train")
    cut.told(0, told([("trainer", f"step{number}") for number in range(20)]))
    lines = cut.text(0.5, at_exit=True).splitlines()
    assert len(lines) == 10
    assert lines[-2] == "  13 more endpoints"


def test_calls_that_had_not_left_the_script_are_not_in_the_count() -> None:
    cut = CutWork("train")
    cut.more({0, 7})
    cut.told(0, told([("trainer", "step")], 3))
    cut.told(1, told([("trainer", "step")], 4))
    assert "  at least 7 calls that had not started, sent to ranks 0-1" in cut.text(0.5, at_exit=True).splitlines()
    other = CutWork("train")
    other.more({7})
    other.told(1, told([("trainer", "step")], 4))
    assert "  4 calls that had not started, sent to rank 1" in other.text(0.5, at_exit=True).splitlines()
