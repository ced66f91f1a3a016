"""The sums below the tables of the memory view, and what they do not explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshrt.inspect.times import since
from meshrt.memory.document import Document
from meshrt.memory.look import Look
from meshrt.memory.reftable import store_totals
from meshrt.memory.units import amount, change
from meshrt.selection import fold_ranks

__all__ = ["totals"]

#: Ranks whose variables could not be told are named in so many groups.
_MOST_REASONS = 5


def totals(document: Document, look: Look) -> list[str]:
    """Return the lines of a document's sums."""
    sums = document["totals"]

    def shown(count: int) -> str:
        return amount(count, look.units)

    swap = f", swap {shown(sums['swap'])}" if sums["swap"] else ""
    lines = [
        f"{_count(sums['ranks'], 'rank')}: {shown(sums['pss'])} PSS (each page once), {shown(sums['rss'])} RSS "
        f"(summed over ranks){swap}; the script and its host agents: {shown(sums['runtime'])} PSS"
    ]
    if sums["without_pss"]:
        lines.append(f"the PSS of {_count(sums['without_pss'], 'rank')} has not come in time")
    lines += [f"on {device}: {shown(count)} kept by torch" for device, count in sums.get("devices", {}).items()]
    lines += store_totals(document, look)
    if "variables" in sums:
        lines += _variables_totals(document, sums["variables"], shown)
    if "since" in document:
        ended = document.get("ended", [])
        lines.append(
            f"growth of all ranks in {since(document['since'], document['time'])}: "
            f"{change(sums['growth'], look.units)}" + (f"; gone: {', '.join(ended[:_MOST_REASONS])}" if ended else "")
        )
    return lines


def _variables_totals(document: Document, told: Mapping[str, Any], shown: Callable[[int], str]) -> list[str]:
    shared = f"{shown(told['shmem'])} mapped shared memory, " if told["shmem"] else ""
    bound, rest = ("", "") if told["exact"] else (">= ", "at most ")
    lines = [
        f"variables of {_count(told['ranks'], 'rank')}: {bound}{shown(told['unique'])}, each byte once "
        f"({bound}{shown(told['total'])} summed over variables)",
        f"not explained: {rest}{shown(told['unexplained'])} of {shown(told['rss'])} RSS: the interpreter, modules, "
        f"what no variable reaches; known: {shown(told['file'])} files and libraries, {shown(told['malloc_free'])} "
        f"free in malloc, {shared}variables",
    ]
    reasons: dict[str, list[int]] = {}
    for row in document["ranks"]:
        if "unique" not in row:
            reasons.setdefault(row.get("note") or row["state"], []).append(row["rank"])
    for why, ranks in list(reasons.items())[:_MOST_REASONS]:
        lines.append(f"no variables of {_count(len(ranks), 'rank')} ({fold_ranks(ranks)}): {why}")
    return lines


def _count(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
