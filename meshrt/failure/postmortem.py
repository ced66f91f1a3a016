"""``meshrt postmortem``: shows the report of a program that has failed again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from json import loads
from pathlib import Path

from meshrt.commandline.command import Arguments
from meshrt.errors import MeshError, UsageError, one_line
from meshrt.failure import files
from meshrt.failure.incident import HANDLED
from meshrt.failure.report import render
from meshrt.failure.showing import listing, of_rank, plain_listing, plain_of_rank
from meshrt.inspect.programs import named
from meshrt.show.paging import write_paged
from meshrt.show.records import POSTMORTEM, to_text
from meshrt.show.status import ExitCode
from meshrt.show.text import since
from meshrt.transport.directories import ended_run, runs
from meshrt.transport.places import runs_base
from meshrt.transport.tools import programs

__all__ = ["report", "show"]

#: Most characters of a command line.
_COMMAND = 200


def _where() -> str:
    return str(runs_base() or "a directory that is safe")


def show(given: Arguments) -> int:
    """Run ``meshrt postmortem``. Returns the exit code, as docs/commands.md says."""
    asked = {"listed": given["list"], "rank": given["ranks"], "json": given["json"]}
    write_paged(sys.stdout, report(given["run"], **asked, tell=_tell))
    return ExitCode.OK


def report(
    run: str, *, listed: bool, rank: str | None, json: bool = False, tell: Callable[[str], object] | None = None
) -> str:
    """Return the report of the last failure of a program, or what else is known of its failures.

    Args:
        run: As docs/commands.md says; "": the program that failed last.
        listed: Name all failures of the program.
        rank: Tell of this rank, or of these ranks.
        json: As text of JSON.
        tell: Given a line that says which program it is, when it has failed, and whether it runs.
    Raises:
        MeshError: There is no failure to show.
        UsageError: There is no such program or rank.
    """
    found = _files(run)
    running = _running(found[-1])
    if listed:
        shown = _json({"running": running, "failures": plain_listing(found)}) if json else listing(found)
        if tell is not None and running is not None:
            tell(f"the program still runs (pid {running}), and may fail again")
        return shown
    incident = files.read(found[-1])  # raises if it is not a failure file
    if tell is not None and not json:
        moment = f"{datetime.fromtimestamp(incident.began):%Y-%m-%d %H:%M:%S}, {since(incident.began)} ago"
        now = "has ended" if running is None else f"still runs (pid {running}), and this is its last failure so far"
        command = one_line(shlex.join(incident.argv), _COMMAND)
        tell(f"{incident.run_id}, {command}, failed on {moment}; it {now}")
    if rank is not None:
        facts = {"run": incident.run_id, "running": running, "file": str(found[-1])}
        return _json({**facts, **plain_of_rank(incident, rank)}) if json else of_rank(incident, rank)
    if json:
        return to_text(loads(found[-1].read_text())) + "\n"
    went_on = "this failure did not end the program: the program continued, and ended later\n"
    return render(incident) + (went_on if incident.outcome == HANDLED else "")


def _json(answer: Mapping[str, object]) -> str:
    return to_text(POSTMORTEM.document(answer)) + "\n"


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
        raise MeshError(f"no failed program found in {_where()}")
    running = named(run, programs())
    if running is not None:
        raise MeshError(
            f"program {running.run_id} (pid {running.pid}) still runs, and no failure is recorded; `postmortem "
            "--modes` shows what its ranks do when an endpoint raises"
        )
    raise MeshError(f"no failure of program {run} is recorded: it did not fail, or was killed before it could write")


def _directory(run: str) -> Path:
    """Return the run directory of a program that runs or has ended. Raises UsageError: there is none."""
    running = named(run, programs())
    if running is not None and running.via:
        raise UsageError(
            f"the files of this program are on its machine; to show them: meshrt postmortem "
            f"{running.run_id} --via {shlex.quote(running.via)}"
        )
    found = ended_run(run) if running is None else running.run_directory
    if found is None and Path(run).is_dir():
        found = Path(run)  # a copy, from elsewhere
    if found is None:
        raise UsageError(
            f"no program {run!r} found in {_where()}; expected the id in a report, the pid of a running program, "
            "or a run directory"
        )
    return found


def _running(found: Path) -> int | None:
    """Return the pid of the program that has written a failure file, if it still runs."""
    directory = found.resolve().parent
    return next((each.pid for each in programs() if each.run_directory.resolve() == directory), None)


def _tell(text: str) -> None:
    print(f"meshrt postmortem: {text}", file=sys.stderr)
