"""``meshrt postmortem``: shows again what a program reported when it failed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from meshrt.errors import SelectionError, UsageError
from meshrt.failure import files
from meshrt.failure.incident import Incident
from meshrt.failure.report import render, render_record, shown
from meshrt.transport.directories import runs_base

__all__ = ["main"]

_ABOUT = """Show why a program failed: the report that it printed at its end, or everything that is known of one rank.

RUN is the program's id, as the report names it, its run directory, or a failure file; without RUN it is the program
that failed last. A program that failed several times has several files: the last one is shown, --list names all."""


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code: 0 shown, 1 there is nothing to show, 2 it was asked wrongly."""
    parser = argparse.ArgumentParser(
        prog="meshrt postmortem", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN")
    parser.add_argument("--rank", type=int, help="everything about the failures of one rank")
    parser.add_argument("--list", action="store_true", help="name the failures of the program")
    parser.add_argument("--json", action="store_true", help="print the file itself")
    given = parser.parse_args(arguments)
    try:
        found = _files(given.run)
        if given.list:
            print(_listing(found), end="")
        elif given.json:
            files.read(found[-1])  # what is no failure file is refused, not printed
            print(json.dumps(json.loads(found[-1].read_text()), indent=1))
        elif given.rank is not None:
            print(_of_rank(files.read(found[-1]), given.rank), end="")
        else:
            print(render(files.read(found[-1])), end="")
    except UsageError as error:
        print(f"meshrt postmortem: {error}", file=sys.stderr)
        return 2 if isinstance(error, SelectionError) else 1
    except BrokenPipeError:
        sys.stderr.close()  # whoever reads has enough; nothing is to be said about that at the end
        return 0
    return 0


def _files(run: str) -> list[Path]:
    """Return the failure files that are meant, the oldest first. Raises UsageError: there is none."""
    path = Path(run)
    if run and path.is_file():
        return [path]
    if run and path.is_dir():
        directories = [path]
    else:
        try:
            directories = sorted(
                entry for entry in runs_base().iterdir() if entry.name.endswith(run) and entry.is_dir()
            )
        except OSError:
            directories = []
        if run and not directories:
            raise UsageError(f"no program {run!r} is known in {runs_base()}; expected an id as the report names it")
    found = [kept for directory in directories if (kept := files.files_of(directory))]
    if found:
        return max(found, key=lambda kept: kept[-1].stat().st_mtime)
    if run:
        raise UsageError(f"program {run} has left no failure: it did not fail, or was killed before it could write")
    raise UsageError(f"no program in {runs_base()} has left a failure")


def _listing(found: list[Path]) -> str:
    lines = []
    for path in found:
        incident = files.read(path)
        verdict = incident.verdict()
        what = "AMBIGUOUS" if verdict.ambiguous or not verdict.roots else shown(str(verdict.roots[0].place))
        headline = shown(verdict.roots[0].headline) if verdict.roots else ""
        lines.append(f"{path}\n  {len(incident.records)} failures; root cause: {what}: {headline}\n")
    return "".join(lines)


def _of_rank(incident: Incident, rank: int) -> str:
    verdict = incident.verdict()
    records = [record for record in incident.records if rank in (record.rank, *record.ranks)]
    if records:
        return "\n".join(render_record(record, incident, verdict) for record in records)
    known = sorted({each for record in incident.records for each in record.ranks or (record.rank,)})
    names = ", ".join(map(str, known[:20])) + (" ..." if len(known) > 20 else "")
    raise SelectionError(f"rank {rank} did not fail; expected one of those that did: {names}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
