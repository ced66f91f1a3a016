"""Grouped answers of many ranks: numbers summed up, what differs from one rank, records for programs."""

from __future__ import annotations

import io
import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from meshrt.debug.operations import JobAnswer, JobReport
from meshrt.debug.prompt.answers import Answers
from meshrt.debug.prompt.context import told
from meshrt.debug.prompt.numbers import number_in, outliers, summary
from meshrt.debug.prompt.tables import listing, status
from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.inspect.facts import ArrayFacts, DictFacts, Facts, NumberFacts
from meshrt.inspect.operations import MeshStatus, ProgramStatus, RankRow, StateGroup
from meshrt.show.records import DEBUG, Recorder, error_facts


def answered(*texts: str, facts: Body | None = None) -> Answers:
    """Rank n answers the n-th text."""
    answers = Answers()
    rows = [
        {"actor": "a", "kind": "answered", "ranks": [rank], "text": text, **({"facts": facts} if facts else {})}
        for rank, text in enumerate(texts)
    ]
    answers.add(JobReport.read({"job": 1, "done": True, "waiting": {}, "answers": rows}))
    return answers


def test_numbers_get_a_line_with_the_odd_ones() -> None:
    answers = answered(*["0.25"] * 7, "0.26", "9.5")
    assert answers.text() == (
        "[0-6] 0.25\n[7] 0.26\n[8] 9.5\nmin 0.25 [0-6], median 0.25, max 9.5 [8]; outliers: [8] 9.5"
    )


def test_many_numbers_are_one_line_unless_asked_for() -> None:
    answers = answered(*(str(rank / 100) for rank in range(31)), "nan")
    assert answers.text().splitlines() == [
        "[0-31] 32 values: min 0 [0], median 0.15, max 0.3 [30]; outliers: [31] nan",
        "(-v shows all)",
    ]
    assert len(answers.text(every=True).splitlines()) == 33


def arrays_of(count: int, *, shape: list[int], odd: int = -1) -> Answers:
    """Rank n has an array whose mean is n / 100; that of one rank is another one, and has NaN."""
    answers = Answers()
    for rank in range(count):
        mean = 7.0 if rank == odd else rank / 100
        size = shape if rank % 2 else [64, 3]
        facts = ArrayFacts("ndarray", size, "float64", "cpu", mean - 1, mean + 1, mean, nan=int(rank == odd))
        found = JobAnswer("a", "answered", f"ndarray {rank}", [rank], facts=facts)
        answers.add(JobReport(answers=[found], waiting={}, done=True, job=1))
    return answers


def test_many_arrays_are_a_line_for_each_shape_unless_asked_for() -> None:
    answers = arrays_of(20, shape=[64, 3], odd=6)
    assert answers.text().splitlines() == [
        "[0-19] ndarray 64x3 float64, min -1 [0], max 8 [6], mean 0 [0] to 7 [6], "
        "outliers of the mean [6] 7, NaN on [6]",
        "(-v shows all)",
    ]
    assert len(answers.text(every=True).splitlines()) == 21  # and NaN
    first, second, more = arrays_of(20, shape=[5]).text().splitlines()
    assert first == "[0-18:2] ndarray 64x3 float64, min -1 [0], max 1.18 [18], mean 0 [0] to 0.18 [18]"
    assert second.startswith("[1-19:2] ndarray 5 float64") and more == "(-v shows all)"
    assert len(arrays_of(16, shape=[5]).text().splitlines()) == 17


def test_two_values_need_no_summary() -> None:
    assert answered("3", "3", "7").text() == "[0-1] 3\n[2] 7"
    assert answered("'a'", "'b'", "'c'").text() == "[0] 'a'\n[1] 'b'\n[2] 'c'"


def test_arrays_that_differ_in_shape_and_have_nan() -> None:
    answers = Answers()
    for rank in range(4):
        facts = ArrayFacts("ndarray", [4, 3 + (rank == 2)], "float32", "cpu", None, None, None, int(rank == 1))
        answer = JobAnswer("a", "answered", f"array {rank}", [rank], facts=facts)
        answers.add(JobReport([answer], {}, done=True))
    assert answers.text().splitlines()[-1] == "shape differs: [0-1,3] [4, 3], [2] [4, 4]; NaN on [1]"


def test_difference_of_arrays() -> None:
    answers = Answers()
    facts = ArrayFacts("ndarray", [2, 3], "float64", "cpu", 0.0, 2.0, 1.0, 0)
    other = replace(facts, shape=[3], max=5.0, nan=2)
    answers.add(JobReport([JobAnswer("a", "answered", "A", [0], facts=facts)], {}, done=True))
    answers.add(JobReport([JobAnswer("a", "answered", "B", [9], facts=other)], {}, done=True))
    assert answers.text(against=0).splitlines()[1] == "[9] B  (shape 2x3 -> 3, max +3, nan +2)"


def test_difference_of_dicts_is_told_item_by_item() -> None:
    def facts(**items: str) -> Body:
        return {"kind": "dict", "items": items}

    answers = answered("{...}", facts=facts(lr="0.1", step="7", old="x"))
    other = {
        "actor": "a",
        "kind": "answered",
        "ranks": [9],
        "text": "{,,,}",
        "facts": facts(lr="0.3", step="7", new="y"),
    }
    answers.add(JobReport.read({"answers": [other], "waiting": {}, "done": True}))
    assert answers.text(against=0).splitlines()[1:] == [
        "[9] items that differ: 3",
        "  new: y  (missing)",
        "  lr: 0.3  (0.1)",
        "  old: missing  (x)",
    ]


def test_long_answers_are_cut_and_say_how_much_more_there_is() -> None:
    long = "\n".join(map(str, range(3741)))
    answers = answered(long, "short")
    lines = answers.text(most=40).splitlines()
    assert lines[:2] == ["[0]", "0"] and lines[-2:] == ["... 3721 more lines (-v shows all)", "[1] short"]
    assert len(lines) == 23 and len(answers.text().splitlines()) == 3743
    assert answers.data()["answers"][0]["text"] == long
    assert len(told(answers, {"verbose": False}).text.splitlines()) == 23
    # Of a command that has no -v, such as logs, nothing is cut.
    assert told(answers, {"verbose": True}).text == answers.text() == told(answers, {}).text
    # A long line fills several of the terminal's; and one line too many is shown rather than spoken of.
    assert answered("x" * 6000).text(most=40).splitlines()[-1] == "... 1200 more characters (-v shows all)"
    assert answered("\n".join("x" * 41)).text(most=40).count("x") == 41
    assert answered("x" * 12_000 + "\ny").text(most=40).endswith(" ...\n... 7202 more characters (-v shows all)")
    # However many there are, of each one a part is shown.
    many = answered(*(f"{rank}\n{long}" for rank in range(9)))
    assert len(many.text(most=40).splitlines()) == 9 * 12


def test_many_long_answers_have_a_limit_together() -> None:
    long = "\n".join("x" * 30)
    many = answered(*(f"{rank}\n{long}" for rank in range(64)))
    lines = many.text(most=40).splitlines()
    assert len(lines) == 10 * 12 + 1
    assert lines[-1] == "... 54 more answers, of ranks 10-63 (-v shows all)"
    assert len(many.text().splitlines()) == 64 * 32
    differences = many.text(most=40, against=5).splitlines()
    assert differences[-1].startswith("... ") and differences[-1].endswith(
        " more answers, of ranks 25-63 (-v shows all)"
    )
    # One more is shown rather than counted.
    assert len(answered(*(f"{rank}\n{long}" for rank in range(11))).text(most=40).splitlines()) == 11 * 12


def test_what_differs_is_on_top_of_a_long_dict() -> None:
    answers = Answers()
    rows = [
        {"actor": "a", "kind": "answered", "ranks": [rank], "text": "\n".join([f"rate {rank}", *"x" * 900]),
         "facts": {"kind": "dict", "items": {"'rate'": str(rank), "'x'": "array([0,\n       1])" * rank}}}
        for rank in range(2)
    ]  # fmt: skip
    answers.add(JobReport.read({"job": 1, "done": True, "waiting": {}, "answers": rows}))
    lines = answers.text(against=0, most=40).splitlines()
    assert lines[:4] == ["[1] items that differ: 2", "  'rate': 1  (0)", "  'x': array([0, 1]) ()", "[0]"]
    assert lines[-1] == "... 891 more lines (-v shows all)" and len(lines) == 15
    assert answers.text(against=0).splitlines()[:2] == ["[0]", "rate 0"]


def differing(first: Body, second: Body) -> list[str]:
    """Rank 0 answers ``first`` and rank 1 ``second``; return what is said of rank 1."""
    answers = Answers()
    rows = [
        {"actor": "a", "kind": "answered", "ranks": [rank], "text": str(items).replace('"', ""),
         "facts": {"kind": "dict", "items": items}}
        for rank, items in enumerate((first, second))
    ]  # fmt: skip
    answers.add(JobReport.read({"answers": rows, "waiting": {}, "done": True}))
    return answers.text(against=0).splitlines()[1:]


def test_addresses_of_items_make_no_difference() -> None:
    net, other = "<Net object at 0x7f01aabbcc00>", "<Net object at 0x7f01aabbcc77>"
    assert differing({"net": net, "lr": "1"}, {"net": other, "lr": "2"}) == [
        "[1] items that differ: 1",
        "  lr: 2  (1)",
    ]
    assert differing({net: "1", "lr": "1"}, {other: "1", "lr": "2"}) == ["[1] items that differ: 1", "  lr: 2  (1)"]
    assert differing({net: "1"}, {other: "1"})[0].startswith(
        "[1] equal except for addresses; the contents of these objects are not compared"
    )
    # Which of two keys is which cannot be told.
    assert differing({net: "1", other: "2"}, {net: "3", other: "2"})[0].startswith("[1] {'<Net object at 0x7f")


def test_dicts_without_a_differing_item_are_compared_as_texts() -> None:
    assert differing({"a": "1", "b": "2"}, {"b": "2", "a": "1"}) == ["[1] {'b': '2', 'a': '1'}"]


def test_difference_from_one_rank() -> None:
    assert answered("3", "3", "7.5").text(against=0) == "[0] 3\n[1] the same\n[2] 7.5  (+4.5)"
    lines = answered("a\nb\nc", "a\nB\nc", "a\nb\nc").text(against=2).splitlines()
    assert lines[:3] == ["[2]", "a", "b"]
    assert lines[-1] == " c"
    assert "-b" in lines
    assert "+B" in lines
    assert "[0] the same" in lines
    same, *_ = answered("<Net at 0x7f01aabbcc00>", "<Net at 0x7f01aabbcc77>").text(against=0).splitlines()[1:]
    assert same.startswith("[1] equal except for addresses; ") and "are not compared" in same
    assert answered("1").text(against=9).startswith("rank 9 is not among the ranks that were asked (0)")


@given(st.lists(st.floats(), min_size=1, max_size=40))
def test_any_numbers_are_summed_up(values: list[float]) -> None:
    table = dict(enumerate(values))
    odd = outliers(table)
    assert odd == sorted(odd)
    assert set(odd) <= set(table)
    if not all(map(math.isfinite, values)) and any(map(math.isfinite, values)):
        assert all(rank in odd for rank, value in table.items() if not math.isfinite(value))
    assert "\n" not in summary([(rank, repr(value), None) for rank, value in table.items()])


@pytest.mark.parametrize(
    ("text", "facts", "number"),
    [
        ("3", None, 3.0),
        ("-1e5", None, -1e5),
        ("1_000", None, None),
        ("*** NameError", None, None),
        ("tensor(3.)", NumberFacts(3.0), 3.0),
        ("3", DictFacts({}), None),
        ("", None, None),
    ],
)
def test_what_is_a_number(text: str, facts: Facts | None, number: float | None) -> None:
    assert number_in(text, facts) == number


def test_records_are_one_line_each_of_plain_json() -> None:
    out = io.StringIO()
    write = Recorder(out, DEBUG)
    write(
        {
            "command": "p",
            "line": "p a x",
            "ok": True,
            **answered("nan", facts={"kind": "number", "value": math.nan}).data(),
        }
    )
    write(error_facts("lits", "lits", "UsageError", "no command 'lits'"))
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["answers"] == [
        {
            "actor": "a",
            "kind": "answered",
            "ranks": [0],
            "text": "nan",
            "facts": {"kind": "number", "value": None},
            "failed": False,
        }
    ]
    assert (first["schema"], first["version"]) == (DEBUG.name, DEBUG.version)
    assert second["error"] == {"type": "UsageError", "message": "no command 'lits'"}
    assert (second["ok"], second["command"]) == (False, "lits")


def test_addresses_make_no_difference() -> None:
    answers = answered("<Net object at 0x7f01aabbcc00>", "<Net object at 0x7f01aabb>", "<Net object at 0x7f01ee>", "3")
    assert answers.text() == "[0-2] <Net object at 0x...>\n[3] 3"
    assert answers.text(against=1).splitlines()[1].startswith("[0,2] equal except for addresses; ")
    assert answered("<Net at 0x7f01aabbcc00>", "4").text() == "[0] <Net at 0x7f01aabbcc00>\n[1] 4"
    assert [answer["ranks"] for answer in answers.data()["answers"]] == [[0], [1], [2], [3]]


def test_status_is_one_screen_however_many_places_there_are() -> None:
    groups = [StateGroup("trainer", "m1", "blocked", f"a.py:{n} (f)", "", [n], 1, 0.0, 0.0) for n in range(60)]
    groups.append(StateGroup("trainer", "m1", "stopped", "b.py:1 (g)", "", [60], 1, 0.0, 0.0))
    gone = {f"exited with code {n}": [n] for n in range(9)}
    mesh = MeshStatus("m1", "m", [("gpus", 64)], 61, ["trainer"], gone, {})
    lines = status(ProgramStatus(meshes=[mesh], groups=groups, terminals=[], own=1)).splitlines()
    assert len(lines) == 1 + 6 + 1 + 1 + 6 + 1
    assert lines[7] == "  ended for 3 other reasons; `list dead` shows all"
    assert lines[-1] == "trainer: 54 more blocked, at 54 places; `list blocked trainer` shows all"


def test_status_has_words_for_a_mesh_without_dimensions() -> None:
    mesh = MeshStatus("m1", "store", [], 1, ["store"], {}, {})
    shown = status(ProgramStatus(meshes=[mesh], groups=[], terminals=[], own=1)).splitlines()
    assert shown[0] == "mesh store m1 (one rank): 1 rank alive; actors: store"


def test_status_says_of_ranks_that_came_to_a_state_at_different_times_when_the_first_and_the_last_did() -> None:
    now = time.time()

    def shown(first: float, last: float) -> str:
        group = StateGroup("trainer", "m1", "running", "", "", [0, 1], 2, now - first, now - last)
        return status(ProgramStatus(meshes=[], groups=[group], terminals=[], own=1)).splitlines()[0]

    assert shown(600, 180) == "trainer 0-1: running for 3 min to 10 min"
    assert shown(600, 598) == "trainer 0-1: running for 10 min"


def test_a_rank_to_compare_with_that_has_no_answer() -> None:
    answers = answered("1", "2")
    why = "rank 9 is not among the ranks that were asked (0-1): there is nothing to compare with"
    assert answers.text(against=9).splitlines()[0] == why
    gone = JobAnswer("a", "gone", "was killed by SIGKILL", [9])
    answers.add(JobReport([gone], {}, done=True))
    assert answers.text(against=9).splitlines()[0] == "rank 9 has not answered: there is nothing to compare with"


def test_a_rank_to_compare_with_is_one_of_those_that_were_asked() -> None:
    answers = answered("1", "2")
    answers.check_against(None)
    answers.check_against(1)
    with pytest.raises(UsageError, match="rank 9 is not among the ranks that were asked; expected one of 0-1"):
        answers.check_against(9)
    with pytest.raises(UsageError, match="rank 9"):
        told(answers, {"diff": 9})
    # The command has run, and cannot be repeated: its answers are shown.
    assert told(answers, {"diff": 9}, again=False).text.startswith("rank 9 is not among")


def row(rank: int, note: str) -> RankRow:
    view = [["n"], 0, [4], [1]]
    return RankRow(
        "trainer", "m", rank, {"n": rank}, view, "node", 7, "step", "", 0, "", "", "dead", note, 0.0, 0, "", 0
    )


def test_a_long_note_is_below_the_table() -> None:
    note = "its process was stopped by a signal (SIGCONT resumes it)"
    lines = listing([row(0, note), row(3, note), row(1, "was killed by SIGKILL")], state="all").splitlines()
    assert max(map(len, lines[:-1])) < 120
    assert "dead (was killed by SIGKILL)" in "\n".join(lines)
    assert lines[-1] == f"dead ({note}): trainer 0,3"
