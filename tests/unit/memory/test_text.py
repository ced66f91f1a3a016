"""The document and its text: nothing is lost where rows are folded, cut or added up, and marks say how sure one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.hooks import Group
from meshrt.memory.document import Document, document_of, entries, folded, read, write
from meshrt.memory.groups import grouped
from meshrt.memory.growth import add_growth
from meshrt.memory.look import Look, clusters
from meshrt.memory.merging import Merged
from meshrt.memory.root import COLUMNS
from meshrt.memory.table import render
from meshrt.memory.units import amount, bytes_of, change, size_text, span

MIB = 1 << 20


def variable(where: str, count: int, **more: Any) -> dict[str, Any]:
    return {"actor": "a", "kind": "attribute", "where": where, "type": "list", "bytes": count, "exact": True, **more}


def rank(number: int, rss: int, **more: Any) -> dict[str, Any]:
    return {
        "mesh_id": "m", "mesh": "mesh1", "rank": number, "coords": {"n": number}, "host": f"node{number % 2}",
        "node": f"node{number % 2}", "pid": 100 + number, "actors": ["a"], "state": "running", "note": "",
        "rss": rss, "pss": rss // 2, "shared": MIB, "anonymous": rss - MIB, "file": MIB, "swap": 0, **more,
    }  # fmt: skip


def document(
    ranks: list[dict[str, Any]], variables: dict[int, list[dict[str, Any]]] | None = None, **more: Any
) -> Document:
    """A document of these ranks, and of what they have said of their variables."""
    answer: dict[str, Any] = {"time": 100.0, "run_id": "r", "processes": [{"pss": 5 * MIB}], **more}
    if variables is not None:
        merged = Merged()
        for number, rows in variables.items():
            total = sum(row["bytes"] for row in rows)
            said = {"unique": total, "total": total, "exact": all(row["exact"] for row in rows)}
            merged.add(Group("m", (number,), "answered", {"rows": rows, **said}, {}))
            ranks[number].update(said)
        answer["variables"], answer["variables_left_out"] = merged.rows(1 << 20)
    return document_of({"columns": COLUMNS, "ranks": [[row.get(name) for name in COLUMNS] for row in ranks], **answer})


def lines(text: str, *starts: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith(starts)]


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
    with pytest.raises(UsageError, match="no unit 'MB'; expected one of auto, B, KiB, MiB, GiB"):
        amount(1, "MB")


def test_sizes_that_a_person_writes() -> None:
    assert [bytes_of(text) for text in ("4GiB", "512 MiB", "1000000", " 1.5KiB ")] == [4 << 30, 512 << 20, 10**6, 1536]
    for text in ("", "0", "4GB", "-1", "x", "1e3", "9" * 40):
        with pytest.raises(UsageError, match="is no size; expected a number of bytes"):
            bytes_of(text)


def test_spans() -> None:
    assert [span("1.0 MiB", most) for most in ("1.0 MiB", "2.0 MiB", "1.0 GiB")] == [
        "1.0 MiB",
        "1.0 - 2.0 MiB",
        "1.0 MiB - 1.0 GiB",
    ]


def test_marks_are_never_mixed_up() -> None:
    assert size_text({"bytes": MIB, "exact": True}) == "= 1.0 MiB"
    assert size_text({"bytes": MIB, "exact": False}) == ">= 1.0 MiB"
    assert size_text({"bytes": MIB, "exact": False, "estimate": 5 * MIB}) == ">= 1.0 MiB ~ 5.0 MiB"
    assert size_text({"bytes": 0, "exact": True, "devices": {"cuda:0": MIB}}) == "= 0 B + 1.0 MiB cuda:0"
    assert size_text({"bytes": MIB, "exact": True}, most=2 * MIB) == "= 1.0 - 2.0 MiB"


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
    said[1][1] = variable("self.y", 8, exact=False, why="pandas objects do not tell all")
    text = render(document([rank(n, 200 * MIB) for n in range(4)], said), Look())
    assert lines(text, "self.") == [
        "self.leak list = 90.0 MiB 3",
        "self.y list >= 2.0 MiB ~ 9.0 MiB 2",
        "self.x list len 3 = 5.0 MiB [0-3] x4 same",
        "self.y list >= 8 B 1 [pandas objects do not tell all]",
        "self.y list = 7 B [0,3] x2 same",
    ]
    assert "variables of 4 ranks: >= 112.0 MiB, each byte once" in text
    assert "not explained: at most" in text
    assert lines(render(document([rank(0, MIB)], {0: [leak, leak]}), Look(most=1)), "+") == []
    cut = render(document([rank(n, MIB) for n in range(4)], said), Look(most=1))
    assert lines(cut, "+") == ["+3 more, 3.0 MiB", "+4 more, 14.0 MiB"]


def test_what_is_not_explained_is_told() -> None:
    row = rank(0, 100 * MIB, file=20 * MIB, malloc_free=10 * MIB)
    text = render(document([row, rank(1, 0, state="dead", note="exited")], {0: [variable("self.x", 30 * MIB)]}), Look())
    assert "not explained: 40.0 MiB of 100.0 MiB RSS" in text
    assert "no variables of 1 rank (1): exited" in text
    assert lines(render(document([row]), Look(totals_only=True)), "RANK", "0 ") == []


def test_groups() -> None:
    said = {
        n: [variable("self.x", (n + 1) * MIB, dtype="float32"), variable("self.y", MIB, type="dict")] for n in (0, 1)
    }
    said[1][1]["exact"] = False
    whole = document([rank(0, 10 * MIB), rank(1, 20 * MIB)], said)
    assert [(row["key"], row["ranks"], row["rss"], row["bytes"]) for row in grouped(whole, "host")] == [
        ("node1", 1, 20 * MIB, 3 * MIB),
        ("node0", 1, 10 * MIB, 2 * MIB),
    ]
    assert [(row["key"], row["variables"], row["bytes"], row["exact"]) for row in grouped(whole, "type")] == [
        ("list", 1, 3 * MIB, True),
        ("dict", 1, 2 * MIB, False),
    ]
    assert lines(render(whole, Look(by="dtype")), "float32", "-") == ["float32 1 = 3.0 MiB", "- 1 >= 2.0 MiB"]
    assert lines(render(whole, Look(by="actor")), "a ") == ["a 2 2 30.0 MiB 15.0 MiB >= 5.0 MiB"]
    with pytest.raises(UsageError, match="of variables; expected them to be asked for"):
        grouped(document([rank(0, 1)]), "type")


def test_folding_loses_nothing() -> None:
    said = {n: [variable("self.x", 5), variable("self.y", n % 2)] for n in range(5)}
    rows = document([rank(n, MIB) for n in range(5)], said)["variables"]
    flat = list(entries(rows))
    assert len(flat) == 10 and folded(flat) == rows


def test_growth() -> None:
    said = {0: [variable("self.x", 5 * MIB), variable("self.old", MIB)], 1: [variable("self.x", 5 * MIB)]}
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
    assert "growth of all ranks in 12 s: +6.0 MiB; gone: self.old" in text
    bound = {0: [variable("self.x", 2 * MIB, exact=False)], 1: []}
    (row,) = add_growth(document([rank(0, MIB), rank(1, MIB)], bound), before)["variables"]
    assert "growth" not in row["sizes"][0], "a lower bound and an exact size have no difference"
    other = {**before, "run_id": "another", "ranks": [{**row, "mesh_id": "n"} for row in before["ranks"]]}
    other["variables"] = [{**row, "mesh_id": "n"} for row in before["variables"]]
    assert add_growth(other, before)["ranks"][1]["growth"] == 0
    assert {size["growth"] for row in add_growth(other, before)["variables"] for size in row["sizes"]} == {0}


def test_files(tmp_path: Path) -> None:
    whole = document([rank(0, MIB)], {0: [variable("self.x", 5)]})
    path = tmp_path / "view.json"
    write(path, whole)
    assert read(path) == whole
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write(tmp_path / "no" / "x", whole)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(tmp_path / "no")
    for text in ('{"format": "other"}', "[1", "[" * 10**5):
        path.write_text(text)
        with pytest.raises(UsageError, match="expected a file that meshrt memory --save has written"):
            read(path)
    path.write_text('{"format": "meshrt memory", "version": 9}')
    with pytest.raises(UsageError, match="has version 9; this meshrt reads version 1"):
        read(path)


def test_looks_that_are_none() -> None:
    with pytest.raises(UsageError, match="no grouping 'x'; expected one of host, actor"):
        Look(by="x")
    with pytest.raises(UsageError, match="no order 'x'; expected one of size"):
        Look(sort="x")
    with pytest.raises(UsageError, match="no unit 'x'; expected one of auto"):
        Look(units="x")
    with pytest.raises(UsageError, match="0 rows are none; expected 1 or more"):
        Look(most=0)


def test_clusters() -> None:
    assert clusters([100, 101, 500, 99], lambda n: n * MIB) == [[99, 100, 101], [500]]
    assert clusters([0, 0], int) == [[0, 0]] and clusters([], int) == []


def test_what_does_not_fit_into_an_answer_is_counted() -> None:
    merged = Merged()
    rows = [variable(f"self.x{n}", n) for n in range(100)]
    merged.add(Group("m", (0, 1), "answered", {"rows": rows, "unique": 0, "total": 0, "exact": True}, {}))
    shown, left_out = merged.rows(1000)
    assert shown[0]["where"] == "self.x99" and shown[0]["sizes"][0]["ranks"] == [0, 1]
    assert left_out == {"count": 100 - len(shown), "bytes": sum(range(100 - len(shown)))}
