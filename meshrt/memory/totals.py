"""The sums below the tables of the memory view, and the memory that they do not explain."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.memory.devices import device_totals
from meshrt.memory.document import Document, Totals, TotalsOfVariables
from meshrt.memory.look import Look, growth_of
from meshrt.memory.reftable import store_totals
from meshrt.memory.units import amount, change
from meshrt.program.groups import by_key
from meshrt.selection import counted, fold_ranks
from meshrt.show.text import since

__all__ = ["growth_of_ranks", "totals"]

#: Groups of ranks without variables that are named, at most.
_MOST_REASONS = 5
#: The option that adds each of these to a saved view.
_KEPT_BY = {"variables": "--vars", "references": "--refs"}


def totals(document: Document, look: Look) -> list[str]:
    """Return the lines of a document's sums."""
    sums = document.totals

    def shown(count: int) -> str:
        return amount(count, look.units)

    lines = [f"{_of_ranks(sums, shown)}{_of_runtime(document, shown)}"]
    if sums.without_pss:
        lines.append(f"the PSS of {counted(sums.without_pss)} is missing: no answer in time")
    if sums.devices:
        lines += device_totals(sums.devices, look.units)
    lines += store_totals(document, look)
    if sums.variables is not None:
        lines += _variables_totals(document, sums.variables, shown)
    if document.since is not None:
        ended = [*(document.ended or ()), *_ended_references(document)]
        lines.append(
            growth_of_ranks(document, "growth", f"in {since(document.since, document.time)}", look.units)
            + (f"; no longer there: {', '.join(ended[:_MOST_REASONS])}" if ended else "")
        )
        restarted = [row.rank for row in document.ranks if row.restarted]
        if restarted:
            lines.append(
                f"restarted since then: {counted(len(restarted))} ({fold_ranks(restarted)}); their growth is not known"
            )
    lines += [
        f"the snapshot to compare with was saved without {_KEPT_BY[table]}: the growth of {table} is not known"
        for table in document.not_compared or ()
    ]
    if document.since_run is not None:
        lines.append(f"compared with run {document.since_run}: ranks are matched by mesh name and rank number")
    return lines


def growth_of_ranks(document: Document, word: str, when: str, units: str) -> str:
    """Return the line of the growth of ranks together: ``"growth of all ranks in 5 s: +1.0 MiB (summed over ranks)"``.

    Args:
        word: One of `meshrt.memory.look.GROWTHS`.
        when: The time span, as text.
    """
    living = [row for row in document.ranks if row.state != "dead"]
    known = [row for row in living if growth_of(row, word) is not None]
    if not known:
        return f"growth of ranks {when}: not known"
    which = "all ranks" if len(known) == len(living) else f"{len(known)} of {len(living)} ranks"
    each = ": shared memory is counted for each rank that holds it" if any(row.store_held for row in known) else ""
    total = change(growth_of(document.totals, word), units)
    return f"growth of {which} {when}: {total} (summed over ranks{each})"


def _of_ranks(sums: Totals, shown: Callable[[int], str]) -> str:
    count = counted(sums.ranks)
    unknown = sums.without_rss or 0  # a view of an earlier version does not contain it
    if unknown:
        if unknown == sums.ranks:
            return f"{count}: their memory is not known"
        count = f"{sums.ranks - unknown} of {count} (the memory of the others is not known)"
    swap = f", swap {shown(sums.swap)}" if sums.swap else ""
    return f"{count}: {shown(sums.pss)} PSS (each page once), {shown(sums.rss)} RSS (summed over ranks){swap}"


def _of_runtime(document: Document, shown: Callable[[int], str]) -> str:
    if not document.processes:  # the file of a rank at its limit
        return ""
    known = {row.host for row in document.processes if row.kind == "agent"}
    hosts = {row.host for row in document.ranks if row.state != "dead"}
    which = f" and {'its host agents' if known >= hosts else 'the host agents that answer'}" if known else ""
    return f"; the script{which}: {shown(document.totals.runtime)} PSS"


def _ended_references(document: Document) -> list[str]:
    rows = [row for row in document.references_ended or () if row.growth]
    return [f"objects put at {row.site}" if row.site else f"an {row.kind}" for row in rows]


def _variables_totals(document: Document, told: TotalsOfVariables, shown: Callable[[int], str]) -> list[str]:
    shared = f"{shown(told.shmem)} mapped shared memory, " if told.shmem else ""
    bound, rest = ("", "") if told.exact else (">= ", "up to ")
    # Bytes that were not counted may be in a variable: the text must not send the user elsewhere.
    nowhere = "memory that no variable reaches" if told.exact else "and memory that only --exact counts"
    lines = []
    if told.ranks and document.opened:
        lines = [f"{document.opened} of {counted(told.ranks)}: {bound}{shown(told.unique)} summed over ranks"]
    elif told.ranks:
        lines = [
            f"variables of {counted(told.ranks)}: {bound}{shown(told.unique)}, each byte once "
            f"({bound}{shown(told.total)} summed over variables)",
            f"not attributed to variables: {rest}{shown(told.unexplained)} of {shown(told.rss)} RSS: the interpreter, "
            f"modules, {nowhere}; known: {shown(told.file)} files and libraries, {shown(told.malloc_free)} "
            f"free in malloc, {shared}variables",
        ]
    return [*lines, *_of_script(document, document.opened or "variables", shown), *_without(document)]


def _of_script(document: Document, what: str, shown: Callable[[int], str]) -> list[str]:
    return [
        f"{what} of the script: {'' if row.exact else '>= '}{shown(row.unique)}, each byte once"
        for row in document.processes
        if row.unique is not None
    ]


def _without(document: Document) -> list[str]:
    """Return why there are no variables of some ranks."""
    reasons = by_key((row.note or row.state, row.rank) for row in document.ranks if row.unique is None)
    return [
        f"no variables of {counted(len(ranks))} ({fold_ranks(ranks)}): {why}"
        for why, ranks in list(reasons.items())[:_MOST_REASONS]
    ]
