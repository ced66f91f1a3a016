"""What blocks ranks that have given up in a collective: others, which have not entered it."""

from __future__ import annotations

from msgspec.structs import replace

from meshrt.collectives.facts import GroupFacts, WorldFacts
from meshrt.failure.incident import Incident, IncidentMesh, keep_stacks
from meshrt.failure.record import FailureRecord
from meshrt.failure.report import render
from meshrt.hooks.facts import Answered
from meshrt.inspect.records import Record, StackFrame, Threads, Times
from tests.unit.failure.records import raised

TIMED_OUT = "Timed out waiting 6000ms for {} operation to complete"


def world(rank: int, entered: int) -> WorldFacts:
    return WorldFacts(rank, [GroupFacts("0", "default_pg", "0-3", entered=entered)])


def gave_up(rank: int, at: float, what: str = "recv") -> FailureRecord:
    return raised(rank, at, "RuntimeError", TIMED_OUT.format(what), actor="main", endpoint="run", world=world(rank, 3))


def kept(*records: FailureRecord, entered: int) -> Incident:
    """An incident in which rank 2 has not failed, and has entered so many collectives."""
    mesh = IncidentMesh("m", "run", {"n": 4}, 1_700_000_000.0, (2,))
    made = Incident(run_id="run1", began=1_700_000_010.0, meshes=(mesh,), records=records)
    record = Record("MainThread", "actor", "main", "run", "blocked", [StackFrame("train.py", 8, "load")], "time.sleep")
    keep_stacks(made, [Answered("m", (2,), Threads([record]), {2: Times([5.0], [0.0], world=world(2, entered))})])
    return made


def test_ranks_that_are_late_are_the_root_and_not_one_of_their_victims() -> None:
    made = kept(gave_up(0, 10.0), gave_up(1, 10.1), replace(gave_up(3, 10.0, "send"), low=0), entered=2)
    verdict = made.verdict()
    assert not verdict.ambiguous and verdict.certainty.startswith("certain: ")
    report = render(made)
    root = report.partition("ROOT CAUSE")[2]
    late = "main rank 2 has not entered collective #3 of default_pg, in which others have failed  [certain: "
    assert root.strip().startswith(late) and "Timed out waiting 6000ms" in root
    assert "blocked 5 s in time.sleep" in root and "more     meshrt postmortem run1 --ranks 2" in root
    assert "DID NOT FAIL" not in report
    assert render(Incident.from_plain(made.to_plain())) == report


def test_nobody_is_late_or_another_failure_came_first() -> None:
    made = kept(gave_up(0, 10.0), entered=3)
    assert made.hang.kind == "" and "ROOT CAUSE  main rank 0" in render(made)
    made = kept(raised(1, 5.0), gave_up(0, 10.0), entered=2)
    assert made.hang.kind == "" and [root.rank for root in made.verdict().roots] == [1]
