"""What has grown: ranks, variables, and lines that put; and how often a watched program is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.hooks.measured import ReferenceRow
from meshrt.memory.document import Document
from meshrt.memory.groups import grouped
from meshrt.memory.growth import add_growth
from meshrt.memory.look import Look
from meshrt.memory.operations import LeftOut
from meshrt.memory.table import render
from meshrt.memory.totals import growth_of_ranks
from meshrt.memory.watching import SHARE, Pace, watch
from tests.unit.memory.documents import MIB, document, lines, rank, reference, variable


def test_growth() -> None:
    old = [variable("self.old", MIB), variable("self.ref", 0, devices={"shared memory": MIB}), variable("self.n", 28)]
    said = {0: [variable("self.x", 5 * MIB), *old], 1: [variable("self.x", 5 * MIB)]}
    before = document([rank(0, 10 * MIB), rank(1, 10 * MIB)], said)
    now = {0: [variable("self.x", 5 * MIB)], 1: [variable("self.x", 9 * MIB), variable("self.new", 2 * MIB)]}
    after = add_growth(document([rank(0, 9 * MIB), rank(1, 17 * MIB)], now, time=112.0), before)
    text = render(after, Look(sort="growth"))
    assert lines(text, "0 ", "1 ", "self") == [
        "1 n=1 a node1 101 17.0 MiB 8.5 MiB 1.0 MiB 16.0 MiB +7.0 MiB running",
        "0 n=0 a node0 100 9.0 MiB 4.5 MiB 1.0 MiB 8.0 MiB -1.0 MiB running",
        "self.x list = 9.0 MiB +4.0 MiB 1",
        "self.new list = 2.0 MiB +2.0 MiB 1",
        "self.x list = 5.0 MiB 0 0",
    ]
    assert (
        "growth of all ranks in 12 s: +6.0 MiB (summed over ranks); no longer there: self.old, self.ref\n"
        in f"{text}\n"
    )
    bound = {0: [variable("self.x", 2 * MIB, exact=False)], 1: []}
    (row,) = add_growth(document([rank(0, MIB), rank(1, MIB)], bound), before).variables or ()
    assert row.sizes[0].growth is None, "a lower bound and an exact size have no difference"
    ranks = [replace(row, mesh_id="n") for row in before.ranks]
    variables = [replace(row, mesh_id="n") for row in before.variables or ()]
    other = replace(before, run_id="another", ranks=ranks, variables=variables)
    assert add_growth(other, before).ranks[1].growth == 0
    assert {size.growth for row in add_growth(other, before).variables or () for size in row.sizes} == {0}
    with pytest.raises(UsageError, match=r"shows all variables; expected one of self\.x"):
        add_growth(replace(other, opened="self.x"), before)


def test_what_was_not_counted_to_its_end_has_grown_by_a_lower_bound_or_nothing_is_said() -> None:
    exact: dict[str, Any] = {"exact": True}
    guess: dict[str, Any] = {"exact": False, "estimate": 5 * MIB, "why": "budget"}
    for size, then, now, later, growth in (
        (5 * MIB, exact, 7 * MIB, guess, 2 * MIB),
        (1 * MIB, guess, 7 * MIB, guess, 2 * MIB),
        (1 * MIB, guess, 7 * MIB, exact, 2 * MIB),
        (5 * MIB, exact, 5 * MIB, guess, None),
        (1 * MIB, guess, 4 * MIB, {**guess, "estimate": 90 * MIB}, None),  # a guess of now is no growth
        (1 * MIB, {"exact": False}, 7 * MIB, exact, None),
    ):
        sizes = (variable("self.x", size, **then), variable("self.x", now, **later))
        before, after = (document([rank(0, MIB)], {0: [each]}) for each in sizes)
        (row,) = add_growth(after, before).variables or ()
        (found,) = row.sizes
        assert (found.growth, found.growth_exact) == (growth, growth and False)


def test_a_lower_bound_of_a_growth_ranks_what_it_is_of() -> None:
    then = {n: [variable("self.seen", 50 * MIB), variable("self.log", MIB)] for n in range(2)}
    seen = {"exact": False, "estimate": 90 * MIB}
    now = {n: [variable("self.seen", (54 + n) * MIB, **seen), variable("self.log", 2 * MIB)] for n in range(2)}
    before, after = (document([rank(n, MIB) for n in range(2)], said) for said in (then, now))
    found = add_growth(after, before, before)
    assert lines(render(found, Look(sort="growth")), "VARIABLE", "self") == [
        "VARIABLE TYPE SHAPE SIZE GROWTH IN ALL RANKS ALSO IN",
        "self.seen list >= 54.0 - 55.0 MiB ~ 90.0 MiB >= +4.0 - +5.0 MiB >= +4.0 - +5.0 MiB [0-1] x2",
        "self.log list = 2.0 MiB +1.0 MiB +1.0 MiB [0-1] x2 same",
    ]
    by_type = render(found, Look(by="type"))
    assert lines(by_type, "list") == ["list 2 >= 113.0 MiB ~ 184.0 MiB >= +11.0 MiB >= +11.0 MiB"]


def test_of_what_is_not_known_to_have_grown_nothing_is_said() -> None:
    lists = [variable("self.a", MIB), variable("self.b", MIB)]
    unknown: dict[str, Any] = {"exact": False, "why": "budget"}
    dicts = [variable("self.d", 9 * MIB, type="dict"), variable("self.s", 9 * MIB, type="set")]
    before = document([rank(0, 40 * MIB), rank(1, 40 * MIB)], {n: [*lists, *dicts] for n in range(2)})
    now = [
        variable("self.a", 3 * MIB),
        variable("self.b", MIB, **unknown),
        variable("self.d", 9 * MIB, type="dict", **unknown),
        variable("self.s", 9 * MIB, type="set", **unknown),
    ]
    ranks = [rank(0, 42 * MIB), rank(1, 40 * MIB)]
    found = add_growth(document(ranks, {0: now, 1: [*lists, dicts[1]]}), before, before)
    of_type = {row.key: [row.growth, row.growth_exact, row.grown] for row in grouped(found, "type")}
    # Of sets, one has not grown, and of the other it is not known: a bound of nothing.
    assert of_type == {"list": [2 * MIB, False, 2 * MIB], "dict": [None] * 3, "set": [None] * 3}
    shown = render(found, Look(by="type", sort="growth"))
    assert lines(shown, "list", "dict") == ["list 2 >= 6.0 MiB >= +2.0 MiB >= +2.0 MiB", "dict 1 >= 9.0 MiB"]
    # ... and neither has it the growth of others that are alike.
    assert lines(render(found, Look()), "self.d", "self.s") == [
        "self.d dict >= 9.0 MiB 0",
        "self.s set >= 9.0 MiB 0",
        "self.s set = 9.0 MiB 0 0 1",
    ]
    first, *others = found.ranks
    found = replace(found, ranks=[first, *(replace(row, growth=None) for row in others)])
    (group,) = grouped(found, "actor")
    assert (group.growth, group.growth_exact, group.grown) == (2 * MIB, False, 2 * MIB)
    assert grouped(add_growth(before, before), "actor")[0].growth_exact is None
    many = document([rank(n, 40 * MIB) for n in range(9)])
    text = render(add_growth(many, replace(many, ranks=many.ranks[1:])), Look())
    assert [line.split()[0] for line in lines(text, "0 ", "[")] == ["0", "[1-8]"]


def test_another_program_is_refused_and_another_run_is_said() -> None:
    before = document([rank(0, MIB)], time=100.0)
    again = replace(document([rank(0, 2 * MIB)]), run_id="another")
    grown = add_growth(again, before)
    assert grown.since_run == "r" and "compared with run r:" in render(grown, Look())
    stranger = replace(document([rank(0, MIB, mesh="other")]), run_id="another")
    with pytest.raises(UsageError, match=r"of another program \(r\), whose meshes are mesh1; expected .* with other"):
        add_growth(stranger, before)
    with pytest.raises(UsageError, match="of another program"):
        add_growth(stranger, stranger, before)
    # Meshes of any program may have the same name.
    then = replace(before, script="/home/me/then.py")
    assert add_growth(replace(again, script="/home/me/then.py"), then).since_run == "r"
    assert add_growth(replace(again, script=""), then).since_run == "r", "one that was typed"
    complaint = (
        r"another program, /home/me/then\.py \(r\); expected one of /home/me/now\.py, of this run \(another\) or"
    )
    with pytest.raises(UsageError, match=complaint):
        add_growth(replace(again, script="/home/me/now.py"), then)
    with pytest.raises(UsageError, match=r"expected one of -c import a\\nx+\.\.\., of this run"):
        add_growth(replace(again, script="-c import a\n" + 1000 * "x"), then)


def test_what_the_earlier_view_has_nothing_of_is_said() -> None:
    before = document([rank(0, MIB)], time=100.0)
    after = add_growth(document([rank(0, MIB)], {0: [variable("self.seen", MIB)]}), before)
    assert after.not_compared == ["variables"]
    assert "saved without --vars: the growth of variables is not known" in render(after, Look(sort="growth"))
    assert add_growth(after, after).not_compared == []
    shared = add_growth(references(reference(1)), before)
    assert "saved without --refs: the growth of references is not known" in render(shared, Look(sort="growth"))


def references(*rows: ReferenceRow, left_out: int = 0, **more: Any) -> Document:
    beyond = LeftOut(left_out, left_out)
    return document([rank(0, MIB), rank(1, MIB)], references=rows, references_left_out=beyond, **more)


def test_what_has_grown_in_shared_memory() -> None:
    before = references(reference(10), reference(5, site="load.py:3"), reference(7, site="end.py:1"))
    # One of the ten has changed hands, and rank 1 holds four more.
    now = references(reference(9), reference(5, holders=(101,)), reference(5, site="load.py:3"), time=112.0)
    found = add_growth(now, before)
    assert [row.growth for row in found.references or ()] == [0, 4 * MIB, 0]
    (ended,) = found.references_ended or ()
    assert (ended.site, ended.count, ended.growth) == ("end.py:1", 0, -7 * MIB)
    by_site = {row.key: (row.bytes, row.growth) for row in grouped(found, "callsite")}
    assert by_site == {"train.py:9": (14 * MIB, 4 * MIB), "load.py:3": (5 * MIB, 0), "end.py:1": (0, -7 * MIB)}
    text = render(found, Look(sort="growth", ranks=False, most=1))
    assert lines(text, "abc", "+") == [
        "abc x5 put 1.0 MiB each +4.0 MiB pid 100 pid 101 1 train.py:9",
        "+14 more, 14.0 MiB",
    ]
    assert "; no longer there: objects put at end.py:1" in text
    by_callsite = render(found, Look(by="callsite", sort="growth", most=1))
    assert lines(by_callsite, "train") == ["train.py:9 14 = 14.0 MiB +4.0 MiB"]


def test_of_what_an_answer_has_left_out_nothing_is_said() -> None:
    new, old = reference(3, site="new.py:1"), reference(3)
    found = add_growth(references(old, new), references(old, left_out=1))
    assert [row.growth for row in found.references or ()] == [0, None]
    assert add_growth(references(new, left_out=1), references(old)).references_ended is None


def test_references_of_another_run_are_known_by_their_ranks() -> None:
    before = references(reference(3), holders={"100": ("mesh1", 0)})
    moved = reference(5, owner=900, holders=(900,))
    found = add_growth(replace(references(moved, holders={"900": ("mesh1", 0)}), run_id="another"), before)
    (row,) = found.references or ()
    assert row.growth == 2 * MIB and found.references_ended == []


def test_the_sum_of_growths_says_what_it_is_of() -> None:
    before = document([rank(n, 10 * MIB) for n in range(2)])
    holds = [rank(n, 10 * MIB, store_held=8 * MIB) for n in range(2)]
    found = add_growth(document(holds), before, before)
    # One object of 8 MiB.
    shared = "+16.0 MiB (summed over ranks: shared memory is counted for each rank that holds it)"
    assert lines(render(found, Look()), "growth") == [f"growth of all ranks in 0 s: {shared}"]
    assert growth_of_ranks(found, "grown", "since then", "auto") == f"growth of all ranks since then: {shared}"
    dead = rank(2, None, state="dead")
    new = document([*(rank(n, 11 * MIB) for n in range(2)), dead, rank(3, 90 * MIB)])
    text = render(add_growth(new, before), Look())
    assert lines(text, "growth") == ["growth of 2 of 3 ranks in 0 s: +2.0 MiB (summed over ranks)"]
    alone = add_growth(document([rank(5, MIB)]), before)
    assert lines(render(alone, Look()), "growth") == ["growth of ranks in 0 s: not known"]


def test_a_rank_that_was_started_again_is_not_compared_with_the_process_before() -> None:
    held = [variable("self.buf", 30 * MIB), variable("self.old", MIB)]
    before = document([rank(n, 50 * MIB) for n in range(2)], {0: held, 1: [*held, variable("self.gone", MIB)]})
    now = {0: [held[0]], 1: [variable("self.buf", 56)]}
    again = document([rank(0, 51 * MIB), rank(1, 20 * MIB, pid=900)], now)
    found = add_growth(again, before)
    assert [(row.growth, row.restarted) for row in found.ranks] == [(MIB, None), (None, True)]
    text = render(found, Look(sort="growth"))
    assert lines(text, "self", "growth", "restarted") == [
        "self.buf list = 30.0 MiB 0 0",
        "self.buf list = 56 B 1",
        "growth of 1 of 2 ranks in 0 s: +1.0 MiB (summed over ranks); no longer there: self.old",
        "restarted since then: 1 rank (1); their growth is not known",
    ]
    watched = add_growth(again, again, before).ranks[1]
    assert (watched.growth, watched.grown, watched.restarted) == (0, None, True)
    other_run = replace(again, run_id="another")
    assert all(row.growth is not None and not row.restarted for row in add_growth(other_run, before).ranks)


def test_an_outlier_of_growth_is_not_folded() -> None:
    ranks = [rank(n, 500 * MIB) for n in range(16)]
    before = document(ranks, {n: [variable("self.x", 100 * MIB)] for n in range(16)})
    later = [rank(n, (504 if n == 5 else 500) * MIB) for n in range(16)]
    now = document(later, {n: [variable("self.x", (104 if n == 5 else 100) * MIB)] for n in range(16)})
    text = render(add_growth(now, before), Look(sort="growth"))
    assert lines(text, "5 ")[0].startswith("5 n=5 a node1 105 504.0 MiB")
    assert lines(text, "self") == [
        "self.x list = 104.0 MiB +4.0 MiB 5",
        "self.x list = 100.0 MiB 0 [0-4,6-15] x15 same",
    ]


class Enough(Exception):
    """A person has seen enough."""


def test_watching_shows_growth_since_the_last_look_and_since_the_first() -> None:
    looks = [document([rank(0, size * MIB)], time=100.0 + size) for size in (10, 11, 15)]
    shown: list[Document] = []

    def ask(_milliseconds: float | None) -> Document:
        if not looks:
            raise Enough
        return looks.pop(0)

    with pytest.raises(Enough):
        watch(ask, lambda found, _pace: shown.append(found), lambda _seconds: None, Pace(1e-6, None, adapts=False))
    assert [(row.growth, row.grown) for each in shown for row in each.ranks] == [
        (MIB, MIB),
        (4 * MIB, 5 * MIB),
    ]
    assert [each.totals.grown for each in shown] == [MIB, 5 * MIB] and shown[1].since_first == 110.0
    assert lines(render(shown[1], Look(sort="growth")), "RANK", "0 ")[1].endswith("+4.0 MiB +5.0 MiB running")


def counted(seconds: float, **size: Any) -> Document:
    return document([rank(0, MIB, counted=seconds), rank(1, MIB)], {0: [variable("self.x", MIB, **size)]})


def test_counting_takes_a_small_part_of_a_ranks_time() -> None:
    pace = Pace(2.0, 200.0, adapts=True)
    first = pace.milliseconds
    pace.looked(counted(0.05, exact=False, why="budget"))
    assert first is not None and pace.milliseconds == 2 * first and pace.seconds == 2.0
    assert pace.text() == "50 ms per rank were not enough for all variables; the next look has 100 ms"
    pace.looked(counted(0.5))
    assert pace.milliseconds == 2 * first and pace.seconds == 0.5 / SHARE
    assert pace.text() == "counting took 500 ms of a rank: next look in 10.0 s, so that counting uses 5% of its time"
    for _ in range(20):
        pace.looked(counted(5.0, exact=False, why="budget"))
    assert pace.milliseconds == 5000.0 and pace.text().startswith(
        "5000 ms per rank were not enough for all variables; their growth"
    )
    fixed = Pace(2.0, 10.0, adapts=False)
    fixed.looked(counted(0.01, exact=False, why="budget"))
    assert fixed.milliseconds == 10.0 and "their growth is not known: see --budget, --exact" in fixed.text()
    fixed.looked(counted(0.01, exact=False, why="a graph of autograd"))
    assert fixed.text() == ""
