"""``meshrt postmortem``: shows the report of a program that has failed again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from meshrt.errors import MeshError, UsageError
from meshrt.failure import files
from meshrt.failure.incident import HANDLED
from meshrt.failure.report import render
from meshrt.failure.showing import listing, of_rank, plain_listing, plain_of_rank
from meshrt.inspect.programs import named
from meshrt.show.records import Recorder, Schema, to_text
from meshrt.show.status import ExitCode, run_command
from meshrt.show.streams import write_out
from meshrt.transport.directories import ended_run, runs
from meshrt.transport.places import runs_base
from meshrt.transport.tools import programs

__all__ = ["main"]

_ABOUT = """Show why a program failed: the report that it printed at its end, or everything that is known of one rank.

RUN is the program's id, as the report names it, its run directory, a failure file, or the pid of a program that still
runs; without RUN it is the program that failed last. A program that failed several times has several files: the last
one is shown, --list names all."""

_SCHEMA = Schema("meshrt postmortem", 2)
_EPILOG = "Exit code: 0; 1 if there is no failure to show; 2: usage error, or no such program or rank."


def _where() -> str:
    return str(runs_base() or "a directory that is safe")


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code, as docs/commands.md says."""
    parser = argparse.ArgumentParser(
        prog="meshrt postmortem",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN")
    ranks = "everything about one rank, or those of a selection such as 'hosts=1': failures, or where they stood"
    parser.add_argument("--rank", metavar="RANK", help=ranks)
    parser.add_argument("--list", action="store_true", help="name the failures of the program")
    parser.add_argument(
        "--json", action="store_true", help="the same for programs (docs/json.md); alone: the file itself"
    )
    given = parser.parse_args(arguments)
    if given.list and given.rank is not None:
        parser.error("--list does not go with --rank: it names all failures, --rank tells of one rank in the last one")
    return run_command("meshrt postmortem", lambda: _show(given), _record if given.json else None)


def _show(given: argparse.Namespace) -> int:
    write_out(sys.stdout, _answer(given))
    return ExitCode.OK


def _record(error: Exception) -> None:
    Recorder(sys.stdout, _SCHEMA)({"error": {"type": type(error).__name__, "message": str(error)}})


def _answer(given: argparse.Namespace) -> str:
    found = _files(given.run)
    running = _running(found[-1])
    if given.list:
        listed = _json({"running": running, "failures": plain_listing(found)}) if given.json else listing(found)
        _tell(running, ", and may fail again")
        return listed
    incident = files.read(found[-1])  # raises if it is not a failure file
    _tell(running, "; this is its last failure so far")
    if given.rank is not None:
        facts = {"run": incident.run_id, "running": running, "file": str(found[-1])}
        return _json({**facts, **plain_of_rank(incident, given.rank)}) if given.json else of_rank(incident, given.rank)
    if given.json:
        return to_text(json.loads(found[-1].read_text())) + "\n"
    handled = "the program had handled this failure, and ended otherwise\n" if incident.outcome == HANDLED else ""
    return render(incident) + handled


def _json(answer: dict[str, Any]) -> str:
    return to_text(_SCHEMA.document(answer)) + "\n"


def _files(run: str) -> list[Path]:
    """Return the failure files of a run, the oldest first.

    Raises:
        UsageError: There is no such program.
        MeshError: It has left no failure files.
    """
    path = Path(run)
    if run and path.is_file():
        return [path]
    directories = [_directory(run)] if run else runs()
    found = [kept for directory in directories if (kept := files.files_of(directory))]
    if found:
        return max(found, key=lambda kept: kept[-1].stat().st_mtime)
    if not run:
        raise MeshError(f"no program in {_where()} has left a failure")
    running = named(run, programs())
    if running is not None:
        raise MeshError(
            f"program {running.run_id} (pid {running.pid}) still runs, and has left no failure; "
            f"meshrt debug {running.run_id} looks into it"
        )
    raise MeshError(f"program {run} has left no failure: it did not fail, or was killed before it could write")


def _directory(run: str) -> Path:
    """Return the run directory of a program that runs or has ended. Raises UsageError: there is none."""
    running = named(run, programs())
    found = ended_run(run) if running is None else running.run_directory
    if found is None and Path(run).is_dir():
        found = Path(run)  # a copy, from elsewhere
    if found is None:
        raise UsageError(
            f"no program {run!r} is known in {_where()}; expected an id as the report names it, the pid of one that "
            "runs, or a run directory"
        )
    return found


def _running(found: Path) -> int | None:
    """Return the pid of the program that has written a failure file, if it still runs."""
    directory = found.resolve().parent
    return next((each.pid for each in programs() if each.run_directory.resolve() == directory), None)


def _tell(running: int | None, what: str) -> None:
    if running is not None:
        print(f"meshrt postmortem: the program (pid {running}) still runs{what}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
