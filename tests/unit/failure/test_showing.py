"""What is shown of a failure beside its report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from meshrt.errors import SelectionError
from meshrt.failure import files
from meshrt.failure.incident import HANDLED, Incident, keep_stacks
from meshrt.failure.record import FailureRecord, Reference
from meshrt.failure.report import named, render
from meshrt.failure.showing import listing, of_rank, plain_listing, plain_of_rank
from meshrt.hooks.facts import Answered, Unanswered, Wait
from meshrt.inspect.merged import MergedStacks, RankSet
from meshrt.inspect.records import Record, StackFrame, Threads, Times
from meshrt.inspect.tree import Stacks
from meshrt.selection import Shape
from tests.unit.failure.records import incident, raised, silent


def stacks_of(*ranks: int, silent: int | None = None) -> MergedStacks:
    """Merged stacks of ranks that have not answered; one of them may be ``silent`` when it is asked where it is."""
    stacks = Stacks()
    stacks.expect("m", "train", Shape.from_extent({"n": 4}), ranks)
    if silent is not None:
        stacks.add(Unanswered("m", (silent,), "silent", "", "stopped"))
    return stacks.answer()


def test_whom_a_time_out_has_waited_for(tmp_path: Path) -> None:
    path = files.write(tmp_path, incident(silent((0, 1, 3), 3000, 3)))
    assert listing([path]) == (
        f"{path}\n  1 failure; root cause: trainer ranks 0-1,3 of train: did not answer trainer.step() within 3 s\n"
    )
    assert plain_listing([path])[0]["roots"][0]["ranks"] == [0, 1, 3]


def test_who_is_not_where_the_others_are_that_did_not_answer(tmp_path: Path) -> None:
    late = silent((0, 1, 2), 3000, 3)
    whole = incident(late, hung=stacks_of(0, 1, 2, silent=2))
    path = files.write(tmp_path, whole)
    assert listing([path]).endswith("did not answer trainer.step() within 3 s; likely caused by rank 2 (n=2)\n")
    assert plain_listing([path])[0]["roots"][0]["likely"] == [2]
    text = of_rank(whole, "0")
    assert text.startswith(
        "trainer ranks 0-2 of train: likely caused by rank 2 (n=2), at another place than the others\n"
    )
    assert "culprits" not in of_rank(whole, "2")  # of that rank alone there are no others
    # Of those that are late nobody stands apart; or nothing is known of it.
    assert whole.likely(silent((2,), 3000, 3)) == () == whole.likely(silent((0, 1), 3000, 3))
    damaged = {"hung": {"meshes": [{"mesh_id": "m", "culprits": {"ranks": "x"}}]}}
    assert Incident.from_plain({**incident(late).to_plain(), **damaged}).likely(late) == ()
    assert "rank known, reason unknown" in of_rank(incident(late), "0")


def hanging(seconds: float, *others: FailureRecord, stopped: bool = False) -> Incident:
    """Rank 0 has not answered: it waits for 1, which waits for 2, which waits for 1 or stands in the debugger."""
    whole = incident(silent((0,), 3000, 3), *others)
    groups = []
    for rank, other in ((0, 1), (1, 2), (2, 1)):
        state = "stopped" if stopped and rank == 2 else "blocked"
        record = Record("MainThread", "actor", "trainer", "step", state, [StackFrame("/train.py", 7, "step")])
        waits = [] if state == "stopped" else [Wait("m", "trainer", "ask", (other,), 1, seconds=seconds)]
        groups.append(Answered("m", (rank,), Threads([record]), {rank: Times([9.0], [0.0], [waits])}))
    keep_stacks(whole, groups)
    return whole


def test_another_actor_of_a_rank_may_be_anywhere() -> None:
    whole = incident(silent(tuple(range(8)), 3000, 3), ranks=8)
    groups = []
    for rank in range(8):
        records = [
            Record("MainThread", "actor", actor, "run", "running", [StackFrame("/train.py", 7, place)])
            for actor, place in (("trainer", "run"), ("loader", "other" if rank == 3 else "usual"))
        ]
        times = {rank: Times([9.0] * 2, [0.0] * 2, [[], []])}
        groups.append(Answered("m", (rank,), Threads(records), times))
    keep_stacks(whole, groups)
    assert whole.likely(whole.records[0]) == () and "likely" not in render(whole)
    # Where that actor was called, it is the one that matters.
    whole.records = (replace(whole.records[0], actor="loader"),)
    keep_stacks(whole, groups)
    assert whole.likely(whole.records[0]) == (3,) and "loader rank 3 (n=3) of train  [likely: " in render(whole)


def test_those_that_wait_for_each_other(tmp_path: Path) -> None:
    path = files.write(tmp_path, hanging(6))
    whole = files.read(path)
    text = "trainer ranks 1 and 2 wait for each other, for 6 s"
    assert listing([path]).endswith(f"; root cause: {text}; {named(whole.records[0])}: {whole.records[0].headline}\n")
    head, *_ = of_rank(whole, "0").splitlines()
    assert head.endswith(f"{text}  [certain: each of these ranks waits for the next one]")
    report = render(whole)
    assert report.splitlines()[1].endswith(f": {text}")
    assert f"ROOT CAUSE  {text}  [certain: " in report and report.splitlines()[-2].endswith("--ranks 1")
    # Who waits in it, or for it, is not among those that have nothing to do with it.
    assert "DID NOT FAIL  1 rank;" in report and re.search(r"\n      3/3 .*  step  ", report)
    cycle = "rank 1 waits for trainer.ask() of rank 2, which waits for trainer.ask() of rank 1: a cycle, for 6 s"
    member = of_rank(whole, "2")
    assert f"blocks other ranks: {text}; its stack at that time:\n" in member and f"    {cycle}\n" in member
    assert "did not fail; its stack at that time" in of_rank(whole, "3") and "cycle" not in of_rank(whole, "3")
    (failure,) = plain_listing([path])
    ranks = {"ranks": {"m": (1, 2)}, "reached": {"m": (0, 1, 2)}}
    assert failure["hang"] == {"kind": "cycle", "text": text, **ranks}
    (told,) = plain_of_rank(whole, "2")["did_not_fail"]
    assert told["waits"][0]["text"] == cycle and told["stacks"]["trees"]
    assert "waits" not in plain_of_rank(whole, "3")["did_not_fail"][0]
    # Two looks may have met two that call each other in turn.
    assert hanging(0.5).verdict().certainty == "rank known, reason unknown"


def test_where_something_else_may_be_the_root_those_that_wait_are_among_the_others() -> None:
    report = render(hanging(6, raised(3, 10)))
    assert "ROOT CAUSE  AMBIGUOUS: one of 2" in report and "wait for each other" not in report
    assert "DID NOT FAIL  2 ranks;" in report and "2/2  n=1:3  step  " in report


def test_one_that_is_stopped_in_the_debugger() -> None:
    report = render(hanging(6, stopped=True))
    where = "ROOT CAUSE  trainer rank 2 is stopped in the debugger at /train.py:7, in step"
    assert f"{where}  [until a user continues it]\n" in report
    assert report.splitlines()[-2].endswith("--ranks 2")


def test_whoever_stands_apart_is_looked_at_before_one_that_was_stopped() -> None:
    whole = hanging(6, stopped=True)
    apart = incident(silent((0, 1, 2), 3000, 3), hung=stacks_of(0, 1, 2, silent=1), hang=whole.hang)
    assert "ROOT CAUSE  trainer rank 1 (n=1) of train  [likely: " in render(apart)


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
    (record,) = plain_of_rank(whole, "2")["records"]
    assert record["cause"]["evidence"] == "carried" and record["cause"]["record"]["ranks"] == [0]
    assert plain_of_rank(whole, "0")["records"][0]["cause"] is None


def test_where_a_healthy_rank_stood() -> None:
    whole = incident(raised(0, 1), stacks=stacks_of(1, 2, 3))
    assert (
        of_rank(whole, "2")
        == "rank 2 of train (n=2) did not fail; its stack at that time:\n    1/1  2 (n=2): no answer yet\n"
    )
    (healthy,) = plain_of_rank(whole, "2")["did_not_fail"]
    assert (healthy["coordinates"], healthy["stacks"]["waiting"]["ranks"]) == ({"n": 2}, [2])


def test_a_healthy_rank_of_which_little_is_known() -> None:
    not_asked = incident(raised(0, 1), stacks_why="stacks not collected (collected shortly before)")
    assert "its stack is not known: stacks not collected (collected shortly before)" in of_rank(not_asked, "2")
    nowhere = stacks_of(1, 2, 3)
    answered = replace(nowhere, meshes=[replace(nowhere.meshes[0], waiting=RankSet())])
    assert of_rank(incident(raised(0, 1), stacks=answered), "2").endswith("at that time:\n  outside user code\n")
    plain = {**incident(raised(0, 1)).to_plain(), "stacks": {"meshes": [{"mesh_id": "m", "trees": 3}]}}
    damaged = Incident.from_plain(plain)
    assert "not known" in of_rank(damaged, "2") and plain_of_rank(damaged, "2")["did_not_fail"][0]["stacks"] is None
    damaged.meshes = (replace(damaged.meshes[0], alive=(0, 1)),)
    assert of_rank(damaged, "2") == "rank 2 of train (n=2) did not fail: its process had ended before\n"


def test_ranks_that_hang_are_shown_where_they_are() -> None:
    whole = incident(silent((0, 1, 3), 3000, 3), hung=stacks_of(0, 1, 3), stacks=stacks_of(2))
    text = of_rank(whole, "1")
    assert "did not answer trainer.step() within 3 s" in text
    assert text.endswith("  stacks   of this rank\n      1/1  1 (n=1): no answer yet\n")
    (record,) = plain_of_rank(whole, "1")["records"]
    assert record["stacks"]["waiting"]["ranks"] == [1]
    assert "of these ranks" in of_rank(whole, "0:2") and "did not fail" not in of_rank(whole, "0:2")


def test_a_selection_of_ranks() -> None:
    whole = incident(raised(0, 1), raised(3, 2), stacks=stacks_of(1, 2))
    found = plain_of_rank(whole, "n=2:")
    assert found["selection"] == "n=2:" and [record["rank"] for record in found["records"]] == [3]
    assert [each["rank"] for each in found["did_not_fail"]] == [2]
    assert "rank 3 (n=3)" in of_rank(whole, "n=2:") and "rank 2 of train (n=2) did not fail" in of_rank(whole, "n=2:")
    with pytest.raises(SelectionError, match="no dimension 'dp'"):
        of_rank(whole, "dp=2")
    with pytest.raises(SelectionError, match="is not known here"):
        of_rank(whole, "stopped")


def test_a_failure_that_the_program_has_handled(tmp_path: Path) -> None:
    path = files.write(tmp_path, incident(raised(0, 1), outcome=HANDLED))
    assert "1 failure, which did not end the program; root cause: " in listing([path])
    assert plain_listing([path])[0]["outcome"] == "handled"


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_is_none(rank: int) -> None:
    with pytest.raises(
        SelectionError, match=f"no mesh of the failed program had a rank {rank}; expected one of 0-3 of train"
    ):
        of_rank(incident(silent((0, 1), 5, 1)), str(rank))
