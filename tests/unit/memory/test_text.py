"""The document and its text: nothing is lost where rows are folded, cut or added up, and marks say how sure one is."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.measured import Fetched, StoreRow
from meshrt.memory.document import Document, entries, of_mesh, plain, read, write
from meshrt.memory.groups import grouped
from meshrt.memory.growth import add_growth
from meshrt.memory.look import Look, clusters
from meshrt.memory.merging import Merged, folded
from meshrt.memory.operations import Device, Holders, HoldingRow, LeftOut, ProcessRow, SizeRow
from meshrt.memory.references import holding_of
from meshrt.memory.reftable import holders_without
from meshrt.memory.table import render
from meshrt.memory.units import amount, bytes_of, change, size_text, span
from tests.unit.memory.documents import MIB, SCRIPT, document, lines, rank, reference, variable
from tests.unit.memory.documents import said as answer


def test_amounts() -> None:
    assert [amount(n) for n in (0, 1023, 1024, 3 * MIB // 2, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "5.0 GiB",
    ]
    assert amount(MIB, "KiB") == "1024.0 KiB" and amount(MIB, "B") == "1048576 B"
    assert [change(n) for n in (None, 0, 2048, -2048)] == ["", "0", "+2.0 KiB", "-2.0 KiB"]


def test_sizes_that_a_person_writes() -> None:
    assert [bytes_of(text) for text in ("4GiB", "512 mib", "1000000", " 1.5KiB ")] == [4 << 30, 512 << 20, 10**6, 1536]
    assert [bytes_of(text) for text in ("4GB", "500 MB")] == [4 * 10**9, 500 * 10**6], "as MESHRT_STORE_LIMIT has it"
    for text in ("", "0", "4GX", "50%", "-1", "x", "1e3", "9" * 40):
        with pytest.raises(UsageError, match="is not a size; expected a number of bytes"):
            bytes_of(text)


def test_spans() -> None:
    assert [span("1.0 MiB", most) for most in ("1.0 MiB", "2.0 MiB", "1.0 GiB")] == [
        "1.0 MiB",
        "1.0 - 2.0 MiB",
        "1.0 MiB - 1.0 GiB",
    ]


def test_shapes() -> None:
    kinds: tuple[dict[str, Any], ...] = (
        {"length": 3},
        {"length": 5, "dtype": "d"},
        {"shape": [1, 3], "dtype": "d"},
        {"shape": []},
    )
    said = {0: [variable(f"self.x{n}", 9 - n, **each) for n, each in enumerate(kinds)]}
    shown = [
        line.split(" list ")[1].split(" = ")[0]
        for line in lines(render(document([rank(0, MIB)], said), Look()), "self.")
    ]
    assert shown == ["len 3", "len 5 d", "1x3 d", "scalar"]


def test_marks_are_never_mixed_up() -> None:
    assert size_text(SizeRow(bytes=MIB, exact=True)) == "= 1.0 MiB"
    assert size_text(SizeRow(bytes=MIB, exact=False)) == ">= 1.0 MiB"
    assert size_text(SizeRow(bytes=MIB, exact=False, estimate=5 * MIB)) == ">= 1.0 MiB ~ 5.0 MiB"
    on_device = SizeRow(bytes=0, exact=True, devices={"cuda:0": MIB})
    assert size_text(on_device) == "= 0 B + 1.0 MiB cuda:0"
    part = replace(on_device, exact=False, estimate=5 * MIB)
    assert size_text(part) == ">= 0 B + >= 1.0 MiB cuda:0 ~ 5.0 MiB in all", "no part of it is exact"
    assert size_text(SizeRow(bytes=MIB, exact=True), most=2 * MIB) == "= 1.0 - 2.0 MiB"


def test_equal_ranks_share_a_row_and_outliers_have_their_own() -> None:
    ranks = [rank(n, (100 + n % 3) * MIB) for n in range(32)]
    ranks[7] = rank(7, 900 * MIB)
    ranks[9] = rank(9, 100 * MIB, state="not-answering", note="C code holds its GIL")
    text = render(document(ranks), Look())
    assert lines(text, "7 ", "9 ", "[") == [
        "7 n=7 a node1 107 900.0 MiB 450.0 MiB 1.0 MiB 899.0 MiB running",
        "[0-6,8,10-31] x30 a node0 (+1) 100.0 - 102.0 MiB 50.0 - 51.0 MiB 1.0 MiB 99.0 - 101.0 MiB running",
        "9 n=9 a node1 109 100.0 MiB 50.0 MiB 1.0 MiB 99.0 MiB not-answering (C code holds its GIL)",
    ]
    every = render(document(ranks), Look(by="rank"))
    assert len(lines(every, *map(str, range(10)))) == 32 + 1


@pytest.mark.parametrize(
    ("sort", "shown"),
    [("size", [3, 2, 1]), ("pss", [3, 2, 1]), ("rank", [1, 2, 3]), ("pid", [1, 2, 3]), ("kind", [1, 2, 3])],
)
def test_the_largest_are_shown_in_any_order(sort: str, shown: list[int]) -> None:
    ranks = [rank(n, (n + 1) * MIB) for n in range(4)]
    for reverse in (False, True):
        text = render(document(ranks), Look(sort=sort, most=3, reverse=reverse))
        numbers = [int(line.split()[0]) for line in lines(text, "0 ", "1 ", "2 ", "3 ")]
        assert numbers == (shown[::-1] if reverse else shown)
        assert "+1 more, 1.0 MiB" in text


def test_variables_are_one_row_for_ranks_that_say_the_same() -> None:
    leak = variable("self.leak", 90 * MIB)
    said = {n: [variable("self.x", 5 * MIB, length=3), variable("self.y", 7)] for n in range(4)}
    said[3].append(leak)
    said[2][1] = variable("self.y", 2 * MIB, exact=False, estimate=9 * MIB, why="budget")
    said[1][1] = variable("self.y", 8, exact=False, why="lower bound: pandas hides part of its memory")
    text = render(document([rank(n, 200 * MIB) for n in range(4)], said), Look())
    assert lines(text, "self.") == [
        "self.leak list = 90.0 MiB 3",
        "self.y list >= 2.0 MiB ~ 9.0 MiB 2",
        "self.x list len 3 = 5.0 MiB [0-3] x4 same",
        "self.y list >= 8 B 1 [lower bound: pandas hides part of its memory]",
        "self.y list = 7 B [0,3] x2 same",
    ]
    assert "variables of 4 ranks: >= 112.0 MiB, each byte once" in text
    assert "not attributed to variables: up to" in text and "memory that no variable reaches" not in text, (
        "it may be what was not counted"
    )
    assert "modules, and memory that only --exact counts; known:" in text
    assert lines(render(document([rank(0, MIB)], {0: [leak, leak]}), Look(most=1)), "+") == []
    cut = render(document([rank(n, MIB) for n in range(4)], said), Look(most=1))
    assert lines(cut, "+") == ["+3 more, 3.0 MiB", "+4 more, >= 7.0 MiB"]


def test_elements_of_a_container_that_are_alike_are_one_row() -> None:
    alike = [variable(f"self.cache['k{number}']", MIB, type="ndarray", shape=[9]) for number in range(100)]
    others = [variable("self.cache['big']", 2 * MIB, type="ndarray", shape=[18]), variable("self.b", 3 * MIB)]
    few = [variable(f"self.few[{number}]", MIB, type="ndarray", shape=[9]) for number in range(3)]
    told = [*alike, *others, *few]
    of_two = document([rank(0, 900 * MIB), rank(1, 900 * MIB)], {0: told, 1: told})
    shown = lines(render(of_two, Look()), "self.")
    assert [line.partition(" = ")[0] for line in shown] == [
        "self.b list",
        "self.cache['big'] ndarray 18",
        "self.cache['k0'] (+99 alike) ndarray 9",
        *(f"self.few[{number}] ndarray 9" for number in range(3)),
    ]
    assert len(lines(render(of_two, Look(by="rank")), "self.")) == 2 * 105  # of each rank, every one


def test_what_is_not_explained_is_told() -> None:
    row = rank(0, 100 * MIB, file=20 * MIB, malloc_free=10 * MIB)
    text = render(document([row, rank(1, 0, state="dead", note="exited")], {0: [variable("self.x", 30 * MIB)]}), Look())
    assert (
        "not attributed to variables: 40.0 MiB of 100.0 MiB RSS: the interpreter, modules, memory that no variable "
        "reaches;" in text
    )
    assert "no variables of 1 rank (1): exited" in text
    # What a variable has mapped is among files and shared memory: 25 of its 30 MiB.
    mapped = replace(row, file=20 * MIB, shmem=15 * MIB, mapped=25 * MIB)
    text = render(document([mapped], {0: [variable("self.x", 30 * MIB)]}), Look())
    assert (
        "not attributed to variables: 50.0 MiB of 100.0 MiB RSS: " in text and "15.0 MiB mapped shared memory" in text
    )
    assert lines(render(document([row]), Look(totals_only=True)), "RANK", "0 ") == []


def test_what_is_not_known_is_no_zero() -> None:
    note = "the agent of its host does not answer"
    unknown = [rank(n, None, state="not-answering", note=note, host="node1") for n in range(2)]
    agent = ProcessRow(kind="agent", host="node0", pid=7, pss=MIB)
    whole = document(unknown, {})
    assert whole.totals.without_rss == 2
    assert render(whole, Look(totals_only=True)).splitlines() == [
        "2 ranks: their memory is not known; the script: 5.0 MiB PSS",
        f"no variables of 2 ranks (0-1): {note}",
    ]
    dead = rank(3, None, state="dead", note="exited", host="node2")
    part = document([*unknown, rank(2, 40 * MIB), dead], processes=[SCRIPT, agent])
    assert render(part, Look(totals_only=True)) == (
        "2 of 4 ranks (the memory of the others is not known): 20.0 MiB PSS (each page once), 40.0 MiB RSS "
        "(summed over ranks); the script and the host agents that answer: 6.0 MiB PSS"
    )
    assert lines(render(whole, Look(most=1)), "+") == ["+1 more"]
    more = replace(part, ranks=[*part.ranks, rank(4, 90 * MIB)])
    assert lines(render(more, Look(most=1)), "+") == ["+4 more, >= 40.0 MiB"]
    assert lines(render(part, Look(by="actor")), "a ") == ["a 4 >= 40.0 MiB >= 20.0 MiB"]
    assert lines(render(part, Look(by="host")), "node") == ["node0 1 40.0 MiB 20.0 MiB", "node1 2", "node2 1"]


def test_what_stands_in_files_is_told_beside_what_is_in_memory() -> None:
    store = StoreRow(host="node0", committed=MIB, limit=4 * MIB, files=9 * MIB, fetched=Fetched(0, 0))
    idle = replace(store, host="node1", committed=0, files=0)
    text = render(document([rank(0, MIB)], stores=[store, replace(store, committed=0), idle]), Look(totals_only=True))
    assert lines(text, "shared") == [
        f"shared memory of node0: {taken} used of 4.0 MiB (MESHRT_STORE_LIMIT), and 9.0 MiB in files"
        for taken in ("1.0 MiB", "0 B")
    ]


def test_groups() -> None:
    said = {
        n: [variable("self.x", (n + 1) * MIB, dtype="float32"), variable("self.y", MIB, type="dict", exact=n == 0)]
        for n in (0, 1)
    }
    whole = document([rank(0, 10 * MIB), rank(1, 20 * MIB)], said)
    assert [(row.key, row.ranks, row.rss, row.bytes) for row in grouped(whole, "host")] == [
        ("node1", 1, 20 * MIB, 3 * MIB),
        ("node0", 1, 10 * MIB, 2 * MIB),
    ]
    assert [(row.key, row.variables, row.bytes, row.exact) for row in grouped(whole, "type")] == [
        ("list", 1, 3 * MIB, True),
        ("dict", 1, 2 * MIB, False),
    ]
    assert lines(render(whole, Look(by="dtype")), "float32", "-") == ["float32 1 = 3.0 MiB", "- 1 >= 2.0 MiB"]
    assert lines(render(whole, Look(by="actor")), "a ") == ["a 2 2 30.0 MiB 15.0 MiB >= 5.0 MiB"]
    with pytest.raises(UsageError, match="--by type adds up variables; expected it with --vars"):
        grouped(document([rank(0, 1)]), "type")


def test_references_in_groups() -> None:
    found = [reference(3), reference(2, owner=101, host="node1"), reference(1, owner=1), reference(1, owner=9)]
    whole = document([rank(n, 10 * MIB, actors=["ab"[n]]) for n in range(2)], references=found)
    assert lines(render(whole, Look(by="host")), "HOST", "node") == [
        "HOST RANKS REFERENCES IN REFERENCES RSS PSS",
        "node0 1 5 5.0 MiB 10.0 MiB 5.0 MiB",
        "node1 1 2 2.0 MiB 10.0 MiB 5.0 MiB",
    ]
    assert lines(render(whole, Look(by="actor")), "a ", "b ", "script", "- ") == [
        "a 1 3 3.0 MiB 10.0 MiB 5.0 MiB",
        "b 1 2 2.0 MiB 10.0 MiB 5.0 MiB",
        "- 1 1.0 MiB",
        "script 1 1.0 MiB",
    ]


def test_folding_loses_nothing() -> None:
    said = {n: [variable("self.x", 5), variable("self.y", n % 2)] for n in range(5)}
    rows = document([rank(n, MIB) for n in range(5)], said).variables or ()
    flat = [(name, replace(size, ranks=(rank,))) for name, rank, size in entries(rows)]
    assert len(flat) == 10 and folded(flat) == rows


def test_files(tmp_path: Path) -> None:
    whole = document([rank(0, MIB)], {0: [variable("self.x", 5)]})
    path = tmp_path / "view.json"
    write(path, whole)
    assert read(path) == whole
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write(tmp_path / "no" / "x", whole)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(tmp_path / "no")
    for text in ('{"schema": "other"}', "[1", "[" * 10**5):
        path.write_text(text)
        with pytest.raises(UsageError, match="expected a file that meshrt memory --save has written"):
            read(path)
    path.write_text('{"schema": "meshrt memory", "version": 9}')
    with pytest.raises(UsageError, match="has version 9; this meshrt reads version 1"):
        read(path)


def test_what_is_of_one_mesh() -> None:
    whole = document([rank(0, MIB), rank(0, 2 * MIB, mesh_id="n")], {0: [variable("self.x", 5)]})
    other = of_mesh(whole, "n")
    assert [row.mesh_id for row in other.ranks] == ["n"] and other.variables == [] and other.totals.rss == 2 * MIB
    assert of_mesh(whole, "m").variables == whole.variables


def test_a_file_of_an_earlier_version_is_opened() -> None:
    """It was saved when documents were dicts: nothing of it is lost."""
    path = Path(__file__).with_name("saved.json")
    view = read(path)
    assert json.loads(json.dumps(plain(view))) == json.loads(path.read_text())
    shown = render(view, Look())
    assert lines(shown, "self.r") == ["self.r meshrt.store.refs.ObjectRef = 0 B + 2.0 MiB shared memory [0-1] x2 same"]
    assert [row.growth for row in add_growth(view, view).ranks] == [0, 0]


def test_names_do_not_act_on_the_terminal() -> None:
    said = {0: [variable("self.\x1b[31mred", 5 * MIB, **{"with": ["self.\x9bx"]}, why="\x07")], 1: []}
    references = [reference(1, site="train\x1b[2J.py:9\n")]
    more: dict[str, Any] = {"references": references, "references_left_out": LeftOut(0, 0)}
    ranks = [rank(0, MIB, actors=["a\nb"]), rank(1, MIB, note="ended:\r\x1b[0m")]
    before = document([rank(0, MIB), rank(1, MIB)], {0: [], 1: [variable("self.\x1bgone", MIB)]})
    whole = document(ranks, said, **more)
    for each in (whole, add_growth(whole, before)):
        for by in ("", "host", "actor", "callsite"):
            text = render(each, Look(by=by))
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        text = render(each, Look())
        assert all(name in text for name in ("self.\\e[31mred", "self.\\x9bx [\\x07]", "train\\e[2J.py:9\\n", "a\\nb"))
    assert "no longer there: self.\\egone" in text


def full() -> Document:
    """A document with all that is read of one."""
    facts = Device(MIB, 5, "3")
    more = {"devices": {"cuda:0": facts}, "store_own": MIB, "store_held": 1, "malloc_free": MIB, "note": "x", "swap": 7}
    said = [
        variable(
            "self.x", 5 * MIB, shape=[3], dtype="f4", device="cuda:0", devices={"cuda:0": 5}, **{"with": ["self.y"]}
        ),
        variable("self.y", 7, exact=False, estimate=9, why="budget", length=3, objects=2),
    ]
    ranks = [rank(0, MIB, variables_left_out=LeftOut(1, 5, True), **more)]
    held = HoldingRow(
        mesh_id="m", ranks=[0], actor="a", kind="attribute", where="self.z", type="list", references=["abc"], count=1
    )
    return document(
        ranks,
        {0: said},
        references=[reference(2)],
        references_left_out=LeftOut(0, 0),
        holders={"100": ("mesh1", 0)},
        holding=[held],
        holding_exact=True,
        stores=[StoreRow(host="node0", committed=5, limit=9, files=1, fetched=Fetched(1, 1), sent=0)],
    )


def mutations(value: Any) -> Iterator[Any]:
    """Go through what is left of a document with one thing gone, or another thing in its place."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, each in items:
        rest = [pair for pair in items if pair[0] != key]
        for other in (..., None, "text", [{}], 10**400, *mutations(each)):
            changed = [*rest[:key], (key, other), *rest[key:]] if isinstance(value, list) else [*rest, (key, other)]
            kept = [pair for pair in changed if pair[1] is not ...]
            yield dict(kept) if isinstance(value, dict) else [each for _, each in kept]


def test_a_file_that_is_damaged_is_refused_or_shown(tmp_path: Path) -> None:
    """Never half of it, and then a traceback."""
    path = tmp_path / "view.json"
    whole = full()
    later = replace(whole, time=200.0)
    grown = add_growth(later, whole, whole)
    refused, told = 0, set[str]()
    for view in (whole, grown, replace(whole, opened="self.x")):
        path.write_text(json.dumps(plain(view)))
        assert plain(read(path)) == plain(view)
    for damaged in mutations(plain(grown)):
        try:
            path.write_text(json.dumps(damaged))
            found = read(path)
        except UsageError as error:
            refused += 1
            told.update(re.findall(r"Expected `(\w+)", str(error)))
            continue
        for by in ("", "host", "type", "callsite"):
            with contextlib.suppress(UsageError):  # it has no variables, say
                render(found, Look(by=by))
        with contextlib.suppress(UsageError):
            add_growth(later, found, found)
    assert refused > 500 and {"float", "int", "str", "array", "object", "bool"} <= told


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"ranks": None}, r"Expected `array`, got `null` - at `\$\.ranks`"),
        ({"totals": {}}, r"Object missing required field `rss` - at `\$\.totals`"),
        ({"time": "now"}, r"Expected `float`, got `str` - at `\$\.time`"),
        ({"stores": [{"host": "a"}]}, r"Object missing required field `committed` - at `\$\.stores\[0\]`"),
    ],
)
def test_what_is_damaged_is_told(part: Any, told: str, tmp_path: Path) -> None:
    path = tmp_path / "view.json"
    path.write_text(json.dumps({**plain(full()), **part}))
    with pytest.raises(UsageError, match=f"view.json is damaged: {told}"):
        read(path)


def test_clusters() -> None:
    assert clusters([100, 101, 500, 99], lambda n: n * MIB) == [[99, 100, 101], [500]]
    assert clusters([0, 0], int) == [[0, 0]] and clusters([], int) == []


def test_what_does_not_fit_into_an_answer_is_counted() -> None:
    merged = Merged()
    rows = [variable(f"self.x{n}", n) for n in range(100)]
    merged.add(Answered("m", (0, 1), answer(rows), {}))
    shown, left_out = merged.rows(1000)
    assert shown[0].where == "self.x99" and shown[0].sizes[0].ranks == [0, 1]
    assert left_out == LeftOut(100 - len(shown), sum(range(100 - len(shown))), True)
    rows[0] = variable("self.x0", 0, exact=False)
    merged.add(Answered("m", (2,), answer(rows), {}))
    assert not merged.rows(1000)[1].exact and merged.rows(1 << 20)[1] == LeftOut(0, 0, True)


def test_what_has_no_row_is_told_with_the_bound_that_it_is() -> None:
    variables = {n: [variable("self.x", 3 * MIB), variable("self.y", MIB, exact=False)] for n in range(2)}
    ranks = [rank(n, 9 * MIB, variables_left_out=LeftOut(4 + n, MIB, n == 0)) for n in range(2)]
    text = render(document(ranks, variables), Look(most=1))
    assert lines(text, "+") == [
        "+1 more, 9.0 MiB",
        "+1 more, >= 1.0 MiB",
        "+4 - 5 more of each of 2 ranks, >= 1.0 MiB there: too many for a row each, or not counted in time",
    ]
    # What was estimated of the second one is no bound.
    estimated = [variable("self.x", 3 * MIB), variable("self.y", MIB, exact=False, estimate=2 * MIB)]
    script = replace(SCRIPT, variables_left_out=LeftOut(1, MIB, True))
    text = render(document([rank(0, 9 * MIB)], {0: estimated}, processes=[script]), Look(most=1))
    assert lines(text, "+") == [
        "+1 more, >= 1.0 MiB",
        "+1 more of the script, 1.0 MiB there: too many for a row each, or not counted in time",
    ]


def test_ranks_that_hold_the_same_share_a_row_in_whatever_order_they_answer() -> None:
    row = HoldingRow(actor="a", kind="attribute", where="self.kept", type="list", references=["abc"], count=1)
    one, other = Holders([row], True), Holders([replace(row, count=2)], False)
    answers = [((2,), one), ((1,), other), ((0, 3), one)]
    found, walked = holding_of([Answered("m", ranks, each, {}) for ranks, each in answers])
    assert [(each.ranks, each.count) for each in found] == [([0, 2, 3], 1), ([1], 2)]
    assert not walked
    kinds: tuple[Literal["silent", "refused", "gone"], ...] = ("silent", "refused", "gone")
    for kind in kinds:
        _, walked = holding_of([Answered("m", (0,), one, {}), Unanswered("m", (1,), kind, "why")])
        assert walked is (kind == "gone"), kind


def test_of_those_who_were_not_asked_for_their_variables_it_is_said() -> None:
    held = reference(1, holders=(1, 100, 101, 7, 8))
    more: dict[str, Any] = {
        "references": [held], "references_left_out": LeftOut(0, 0), "holding": [], "holding_exact": True,
        "processes": [SCRIPT, ProcessRow(kind="agent", host="node0", pid=7)],
        "holders": {"100": ("mesh1", 0), "101": ("mesh1", 1)},
    }  # fmt: skip
    nowhere = "in no variable: in a local variable of an endpoint or of the script, or in transit"
    beside = ["agent: held by a host agent, for other ranks", "pid 8: not the process of a running rank"]
    assert holders_without(document([rank(0, MIB), rank(1, MIB)], **more)) == [f"script, 0-1: {nowhere}", *beside]
    unasked = "script, 1: not asked: not in the selection"
    assert holders_without(document([rank(0, MIB)], **more, chosen=True)) == [unasked, f"0: {nowhere}", *beside]
