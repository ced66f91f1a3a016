"""``python -m bench``: rounds over the contestants, then one table.

Within a round every scenario is run by every contestant before the next scenario begins (A B C, A B C),
so what the machine does meanwhile falls on all of them alike.
"""

import json
import signal
import sys
from typing import TypeAlias

from bench.against import checked_out, summary
from bench.machine import facts
from bench.options import Options, parse
from bench.peers import CONTESTANTS, SUBJECT, Contestant, importable
from bench.processes import adopt_orphans
from bench.results import Results
from bench.rows import Row
from bench.runner import RunError, measure
from bench.table import as_document, as_table, bar_summary

__all__ = ["main"]

INSTALL = "pip install '.[bench]'"
NEEDS = {
    "payload": "numpy",
    "dap": "debugpy",
    "dap_many": "debugpy",
    "dap_cost": "debugpy",
    "hosts": "numpy",
    "hosts_ray": "ray",
    "scripts": "torch",
    "scripts_where": "torch",
}
"""Packages without which a scenario is left out."""
ROW_NEEDS = {"memory_lists_ratio": "guppy"}
"""... and without which a row is, by its key."""

Runs: TypeAlias = dict[tuple[str, int], list[Row]]
"""By scenario and number of actors: the rows that one run of them yields."""


def main(arguments: list[str]) -> int:
    """Measure and print. Return 1 where a run failed; a missed bar or an absent peer is no failure."""
    options = parse(arguments)
    adopt_orphans()
    chosen = [each for each in CONTESTANTS if each.name in options.peers]
    if options.against is None:
        return compare(options, chosen)
    with checked_out(options.against) as other:
        at = next(number for number, each in enumerate(chosen, 1) if each.name == SUBJECT)
        return compare(options, [*chosen[:at], other, *chosen[at:]])


def compare(options: Options, chosen: list[Contestant]) -> int:
    """Measure and print; see `main`."""
    present = [each for each in chosen if each.installed()]
    machine = facts(present)
    for name, fact in machine.items():
        print(f"{name}: {fact}")
    for each in chosen:
        if each not in present:
            print(f"{each.name}: not installed ({INSTALL})")
    runs = group_by_run(options.rows)
    for scenario in dict.fromkeys(scenario for scenario, _ in runs):
        if not importable(needed := NEEDS.get(scenario, "meshrt")):
            print(f"{scenario} rows: {needed} is not installed ({INSTALL})")
            runs = {run: rows for run, rows in runs.items() if run[0] != scenario}
    for key, needed in ROW_NEEDS.items():
        if not importable(needed) and any(row.key == key for rows in runs.values() for row in rows):
            print(f"{key}: {needed} is not installed ({INSTALL})")
            runs = {run: [row for row in rows if row.key != key] for run, rows in runs.items()}
    results = Results()
    problems = run_rounds(options, runs, present, results)
    names = [each.name for each in chosen]
    print(f"\nmedian of {options.rounds} (meshrt's ratio), below it minimum - maximum\n")
    print(as_table(options.rows, names, results))
    print(f"\n{bar_summary(options.rows, results)}")
    if options.against:
        print(f"\n{summary(options.rows, options.against, results)}")
    if options.json:
        rows = as_document(options.rows, names, results)
        document = {"machine": machine, "quick": options.quick, "rows": rows, "problems": problems}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if problems else 0


def run_rounds(options: Options, runs: Runs, present: list[Contestant], results: Results) -> list[str]:
    """Fill ``results`` and return what went wrong, each of it printed when it happens."""
    problems: list[str] = []
    for number in range(1, options.rounds + 1):
        results.begin_round()
        for (scenario, ranks), rows in runs.items():
            for each in present if number % 2 else reversed(present):  # what comes first in a run may be slower
                if not each.plays(scenario):
                    continue
                progress(f"round {number}/{options.rounds}: {each.name} {scenario} {ranks}")
                try:
                    values = measure(each, scenario, ranks, quick=options.quick, timeout=options.timeout)
                except RunError as error:
                    problems.append(f"{each.name} {scenario} {ranks}, round {number}: {error}")
                    progress("")
                    print(problems[-1])
                else:
                    results.add(rows, each.name, values)
    progress("")
    return problems


def group_by_run(rows: list[Row]) -> Runs:
    """Return the runs that the rows need, in the order of the table."""
    runs: Runs = {}
    for row in rows:
        runs.setdefault((row.scenario, row.ranks), []).append(row)
    return runs


def progress(text: str) -> None:
    """Show on a terminal what is being measured, in one line that is overwritten."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # An exit by an exception, so that the runner still ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
