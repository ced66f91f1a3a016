"""The results as text: one table for people, one document for programs."""

from typing import Any

from tabulate import tabulate

from bench.peers import SUBJECT
from bench.results import Results
from bench.rows import Row

__all__ = ["as_document", "as_table", "bar_summary"]


def as_table(rows: list[Row], names: list[str], results: Results) -> str:
    """Return the table. A cell: median, (meshrt's ratio to it), and below it minimum - maximum."""
    lines = [
        [f"{row.label}\n{row.unit}"]
        + [cell(row, name, results) for name in names]
        + ["\n".join(f"{each.bar.text(row.unit)}  {each.word}" for each in results.verdicts(row))]
        for row in rows
    ]
    return tabulate(lines, headers=["", *names, "bar"], tablefmt="simple", disable_numparse=True)


def cell(row: Row, name: str, results: Results) -> str:
    """Return what stands in one cell; empty where nothing was measured."""
    median = results.median(row, name)
    if median is None:
        return ""
    ratio = None if name == SUBJECT else results.ratio(row, name)
    beside = "" if ratio is None else f" ({number(ratio)}x)"
    values = results.values(row, name)
    below = "" if len(values) == 1 else f"\n{number(min(values))} - {number(max(values))}"
    return f"{number(median)}{beside}{below}"


def number(value: float) -> str:
    """Return three digits, and all digits left of the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def bar_summary(rows: list[Row], results: Results) -> str:
    """Return one line: how many bars hold, and which are missed by what."""
    verdicts = [(row, each) for row in rows for each in results.verdicts(row)]
    missed = [
        f"{row.key} {each.bar.text(row.unit)} (found {number(each.found)})"
        for row, each in verdicts
        if each.word == "MISSED" and each.found is not None
    ]
    held = sum(each.word == "ok" for _, each in verdicts)
    open_bars = sum(each.found is None for _, each in verdicts)
    line = f"bars: {held} ok, {len(missed)} missed, {open_bars} not measured"
    return "; ".join([line, *missed])


def as_document(rows: list[Row], names: list[str], results: Results) -> list[dict[str, Any]]:
    """Return all values, round by round, in the unit of each row, with medians, ratios and bars."""
    return [
        {
            "key": row.key,
            "label": row.label,
            "unit": row.unit,
            "ranks": row.ranks,
            "rounds": {name: results.values(row, name) for name in names},
            "median": {name: results.median(row, name) for name in names},
            "ratio": {name: results.ratio(row, name) for name in names if name != SUBJECT},
            "bars": [
                {"bar": each.bar.text(row.unit), "found": each.found, "verdict": each.word}
                for each in results.verdicts(row)
            ],
        }
        for row in rows
    ]
