"""Which failure is the root of all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from meshrt.failure.causes import STOPPED, Verdict, judge
from meshrt.failure.record import ExceptionFacts, FailureRecord, Reference
from meshrt.hooks.facts import UNRAISABLE
from tests.unit.failure.records import MS, death, raised

#: What rank 0 is told of rank 2.
ABOUT_2 = Reference("a2.1", "m", 2)


def roots(*records: FailureRecord) -> list[int]:
    """Return the ranks of the root cause; the order in which records come does not matter."""
    verdicts = []
    for seed in range(3):
        shuffled = list(records)
        random.Random(seed).shuffle(shuffled)
        verdicts.append(judge(shuffled))
    assert all(verdict.roots == verdicts[0].roots and verdict.causes == verdicts[0].causes for verdict in verdicts)
    if verdicts[0].ambiguous:
        return [-1, *(root.rank for root in verdicts[0].roots)]
    return [root.rank for root in verdicts[0].roots]


def evidence_of_second(verdict: Verdict) -> str:
    """Return the evidence that the second failure is a victim."""
    cause = verdict.cause_of(verdict.records[1])
    assert cause is not None
    return cause.evidence


def test_one_failure_is_certain() -> None:
    verdict = judge([raised(2, 5)])
    assert [root.rank for root in verdict.roots] == [2]
    assert verdict.certainty.startswith("certain") and not verdict.ambiguous and not verdict.causes


def test_what_carries_another_failure_is_its_victim_whatever_the_clock_says() -> None:
    error = raised(0, 1, "ActorError", "about rank 2", about=ABOUT_2)
    root = raised(2, 1.5, cleaned_up=10)
    assert roots(error, root) == [2]
    verdict = judge([error, root])
    assert verdict.cause_of(root) is None
    cause = verdict.cause_of(error)
    assert cause is not None and cause.evidence == "carried" and "rank 2 of train" in cause.why


def test_of_a_chain_of_calls_the_innermost_rank_is_the_root() -> None:
    first = raised(2, 1)
    second = raised(1, 2, "ActorError", about=Reference("a2.1", "m", 2))
    third = raised(0, 3, "ActorError", about=Reference("a1.1", "m", 1))
    assert roots(first, second, third) == [2]


def test_a_failure_that_is_about_one_that_nobody_has_told() -> None:
    verdict = judge([raised(0, 1, "ActorError", about=ABOUT_2)])
    assert not verdict.roots and [about.rank for about in verdict.unknown] == [2]
    assert roots(raised(0, 1, "ActorError", about=ABOUT_2), raised(3, 0.5)) == [-1, 3]


def test_a_rank_that_was_stopped_is_no_candidate() -> None:
    user = raised(0, 1, STOPPED, about=Reference("", "log", 0))
    assert not judge([user]).ambiguous and roots(user) == [0]
    assert roots(user, raised(2, 1.5, cleaned_up=10)) == [2]


def test_two_that_name_each_other_are_not_both_victims() -> None:
    verdict = judge([raised(0, 1, about=Reference("a1.1", "m", 1)), raised(1, 2, about=Reference("a0.1", "m", 0))])
    assert verdict.roots


def test_a_death_is_found_by_the_rank_that_an_error_names() -> None:
    told = raised(0, 3, "ProcessDied", "rank 2 was killed", about=Reference("", "m", 2))
    assert roots(told, death(2, 3.5, seen_late=1)) == [2]
    host = FailureRecord(kind="host", mesh_id="m", mesh="train", ranks=(2, 3), host="node", low=2 * MS, high=2 * MS)
    assert judge([told, host]).roots == (host,)


@pytest.mark.parametrize("kind", ["EOFError", "ConnectionResetError", "TimeoutError"])
def test_what_a_rank_gets_whose_peer_is_gone(kind: str) -> None:
    assert roots(raised(0, 1, kind), raised(2, 0.5)) == [2]
    assert roots(raised(0, 1, kind), raised(1, 1, kind), death(2, 1.2, seen_late=0.5)) == [2]
    # The cause itself cleaned up before anybody could note it.
    assert roots(raised(0, 1, kind), raised(2, 300, cleaned_up=1000)) == [2]
    wrapped = ExceptionFacts("RuntimeError", "all_reduce", linked=(ExceptionFacts(kind, "x", (kind,)),))
    assert roots(raised(0, 1, exception=wrapped), raised(2, 0.5)) == [2]
    assert judge([raised(0, 1, kind), raised(2, 0.5)]).certainty.startswith("inferred")


def test_a_text_may_say_it_too() -> None:
    gloo = raised(0, 1, "RuntimeError", "[../gloo/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:2934")
    assert roots(gloo, raised(2, 0.9)) == [2]


def test_a_consequence_long_after_has_another_cause() -> None:
    assert roots(raised(2, 0), raised(0, 40_000, "EOFError")) == [2]
    assert evidence_of_second(judge([raised(2, 0), raised(0, 40_000, "EOFError")])) == "later"
    assert evidence_of_second(judge([raised(2, 0), raised(0, 40_000, "TimeoutError")])) == "inferred"


def test_only_consequences_are_known() -> None:
    verdict = judge([raised(0, 1, "EOFError"), raised(1, 2, "EOFError")])
    assert [root.rank for root in verdict.roots] == [0, 1] and "caused by another" in verdict.certainty


def test_the_first_by_time_and_nothing_links_the_others() -> None:
    verdict = judge([raised(0, 7, "KeyError"), raised(2, 5)])
    assert [root.rank for root in verdict.roots] == [2] and verdict.certainty == "the first by time"
    assert evidence_of_second(verdict) == "later"


def test_times_that_overlap_are_ambiguous() -> None:
    assert roots(raised(0, 7, "KeyError"), raised(2, 9, cleaned_up=5)) == [-1, 0, 2]
    assert roots(death(0, 7, seen_late=3), raised(2, 5)) == [-1, 2, 0]
    assert roots(death(0, 7, seen_late=1), raised(2, 5)) == [2]


def test_failures_that_are_alike_count_as_one() -> None:
    alike = [raised(rank, rank, message=f"no device {rank}") for rank in range(64)]
    verdict = judge(alike)
    assert len(verdict.roots) == 64 and not verdict.ambiguous and verdict.certainty.startswith("certain")
    assert roots(*alike[1:], raised(0, 0.5, "KeyError")) == [0]


def test_a_process_that_ended_after_its_own_exception() -> None:
    stray = raised(2, 1, waited_for=False, what="thread 'loader'")
    verdict = judge([stray, death(2, 3, signal=None, exit_code=1)])
    assert verdict.roots == (stray,) and evidence_of_second(verdict) == "own"
    assert evidence_of_second(judge([stray, replace(death(2, 3), pid=7)])) == "later"


def test_what_a_caller_had_been_told_of_before_is_not_the_cause() -> None:
    """The script has handled it, and made another call."""
    handled, fatal = raised(0, 1), raised(2, 50, "KeyError")
    assert [root.rank for root in judge([handled, fatal]).roots] == [0]
    assert judge([handled, fatal], since=20 * MS).roots == (fatal,)
    stray = replace(handled, waited_for=False)
    assert judge([stray, fatal], since=20 * MS).roots == (stray,)
    told = raised(3, 51, "ActorError", about=Reference("a0.1", "m", 0))
    assert judge([handled, told], since=20 * MS).roots == (handled,)


@pytest.mark.parametrize(("signal", "root"), [(9, 2), (11, 2), (6, 1)])
def test_the_end_of_a_process_may_be_noticed_after_the_errors_of_its_peers(signal: int, root: int) -> None:
    """On a machine that is loaded. SIGABRT may itself be what follows from the end of a peer."""
    victims = raised(1, 10, "ConnectionResetError"), raised(3, 30, "ConnectionResetError", "by 2")
    assert roots(*victims, death(2, 22, signal=signal, seen_late=5))[0] == root
    assert roots(*victims, death(2, 400, signal=signal, seen_late=5))[0] == 1


def test_a_connection_error_that_surely_came_first_is_the_root() -> None:
    first = raised(3, 1, "ConnectionResetError", "the database is gone")
    assert roots(first, raised(5, 152)) == [3]


def test_a_process_that_was_killed_is_no_consequence_of_its_own_exceptions() -> None:
    stray = raised(2, 1, waited_for=False, what="thread 'loader'")
    assert roots(stray, death(2, 3, signal=9)) == [2] and not judge([stray, death(2, 3)]).cause_of(death(2, 3))
    assert evidence_of_second(judge([stray, death(2, 3, signal=9)])) == "later"
    silent = raised(2, 1, waited_for=False, what=UNRAISABLE)
    assert evidence_of_second(judge([silent, death(2, 3, signal=None, exit_code=1)])) == "later"


def test_an_owner_that_raises_about_a_failure_is_its_victim() -> None:
    root = death(2, 5)
    asked = raised(0, 6, "LookupError", "no spare", endpoint="__supervise__", because=Reference("", "m", 2))
    assert roots(root, asked) == [2]
    cause = judge([root, asked]).cause_of(asked)
    assert cause is not None and (cause.evidence, cause.why) == (
        "asked",
        "it handles the failure of rank 2 of train",
    )
    # Though somebody had been told of it before.
    told = replace(root, told=5 * MS + 1)
    assert judge([told, asked], since=7 * MS, about=[Reference("a0.1", "m", 0)]).roots == (told,)


def test_an_error_that_the_script_has_read_is_over_however_wrong_the_clock_of_its_rank() -> None:
    handled, last = (raised(1, at, "OSError", waited_for=True, clock_error=50 * MS) for at in (5, 20))
    assert judge([handled, last], since=10 * MS).roots == (handled, last)
    read = replace(handled, told=9 * MS)
    assert judge([read, last], since=10 * MS).roots == (last,)
    assert judge([read, last], since=8 * MS).roots == (read, last), "the call was sent before"


def test_an_init_that_fails_the_second_time_is_the_victim_of_the_end_before() -> None:
    ends = [death(1, at, restarts=True, incarnation=number) for number, at in enumerate((5, 50))]
    again = raised(1, 60, "OSError", endpoint="__init__", incarnation=2)
    verdict = judge([*ends, again])
    cause = verdict.cause_of(again)
    assert cause is not None and cause.record == ends[1]
    assert cause.why == "__init__ ran again after rank 1 was killed by SIGKILL"
    # What has raised in it at first has no such reason.
    assert judge([ends[0], replace(again, incarnation=0)]).cause_of(again) is None
    assert judge([ends[0], replace(again, endpoint="step", incarnation=1)]).cause_of(again) is None
    # The end itself was made good, but for what came of it.
    assert judge([*ends, again], since=55 * MS, about=[Reference("a1.1", "m", 1)]).roots == (ends[1],)


def test_many_failures_are_judged_quickly_enough_for_a_report() -> None:
    chain = [raised(0, 0)] + [
        raised(rank, rank, "ActorError", about=Reference(f"a{rank - 1}.1", "m", rank - 1)) for rank in range(1, 1000)
    ]
    assert judge(chain).roots == (chain[0],)


def test_nothing_has_failed() -> None:
    assert not judge([]).roots


REFERENCES = st.none() | st.builds(
    Reference, st.sampled_from(["", "a0.1", "a1.1", "x"]), st.just("m"), st.integers(-1, 4)
)
RECORDS = st.one_of(
    st.builds(
        raised,
        st.integers(0, 3),
        st.floats(0, 1000),
        st.sampled_from(["ValueError", "EOFError", "ActorError"]),
        about=REFERENCES,
        cleaned_up=st.sampled_from([0.0, 1000.0]),
    ),
    st.builds(death, st.integers(0, 3), st.floats(0, 1000), signal=st.sampled_from([9, 13, None])),
)


@given(st.lists(RECORDS, max_size=8), st.randoms())
def test_whatever_failed_there_is_a_verdict_that_does_not_depend_on_the_order(
    records: list[FailureRecord], draw: random.Random
) -> None:
    verdict = judge(records)
    shuffled = list(records)
    draw.shuffle(shuffled)
    again = judge(shuffled)
    assert (verdict.ambiguous, verdict.certainty) == (again.ambiguous, again.certainty)
    assert sorted(map(repr, verdict.roots)) == sorted(map(repr, again.roots))
    assert bool(verdict.roots or verdict.unknown) is bool(records)
    # Everything is a root, a victim, or both candidates and victims of nobody.
    assert len(verdict.roots) + len(verdict.causes) == len(records)


# -- failures on several machines, whose clocks are compared within an error


def test_of_two_machines_times_within_the_error_of_their_clocks_are_ambiguous_and_the_reason_is_told() -> None:
    first = raised(1, 10)
    other = raised(2, 12, "KeyError", "k", clock="n2", clock_error=3 * MS)
    verdict = judge([first, other])
    assert verdict.ambiguous and verdict.roots == (first, other)
    words = "the order of the failures is not known: the difference of their clocks is known only to within 3 ms"
    assert verdict.certainty == words
    surely = judge([first, raised(2, 14, "KeyError", "k", clock="n2", clock_error=3 * MS)])
    assert (surely.roots, surely.certainty) == ((first,), "the first by time")


def test_times_of_one_machine_are_compared_exactly() -> None:
    first = raised(1, 10, clock="n2", clock_error=50 * MS)
    other = raised(2, 12, "KeyError", "k", clock="n2", clock_error=50 * MS)
    assert judge([other, first]).roots == (first,)


def test_a_consequence_on_another_machine_may_seem_to_come_first() -> None:
    cause = death(1, 12, clock="n1", clock_error=3 * MS)
    victim = raised(2, 10, "EOFError", clock="n2", clock_error=3 * MS)
    verdict = judge([victim, cause])
    assert verdict.roots == (cause,)
    assert judge([victim, death(1, 117, clock="n1", clock_error=3 * MS)]).roots == (victim,)


def test_a_failure_on_another_machine_that_was_told_before_the_call() -> None:
    before = raised(1, 10, clock="n2", clock_error=3 * MS)
    now = raised(2, 40, "KeyError", "k")
    assert judge([before, now], since=14 * MS).roots == (now,)
    assert before in judge([before, now], since=12 * MS).roots
