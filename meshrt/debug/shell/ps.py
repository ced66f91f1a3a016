"""``meshrt ps``: the running programs of this user, and what their ranks do."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from meshrt.debug.prompt.records import Recorder
from meshrt.debug.prompt.tables import listing
from meshrt.debug.prompt.text import clean
from meshrt.debug.shell.survey import Found, survey
from meshrt.errors import UsageError
from meshrt.failure import files
from meshrt.failure.showing import root_cause
from meshrt.hooks import Body
from meshrt.inspect.commands import run_command, write_out
from meshrt.inspect.programs import command_of, seconds_of
from meshrt.inspect.times import since
from meshrt.selection import parse, parse_folded
from meshrt.transport.directories import in_use, runs
from meshrt.transport.tools import ToolConnection, programs

__all__ = ["main"]

_ABOUT = """Show the meshrt programs of this user that run: id, pid, age, ranks by state, meshes and actors, command.

-v shows the ranks of each as well, with pid and memory; above 32, equal ones share a row, and -vv shows every one.
A program that does not answer is named all the same. Programs that have failed lately are named below them:
meshrt postmortem shows why. Nobody is stopped, or changed, by being looked at."""

_EPILOG = "Exit code: 0; 1 if a program does not answer, or none has such ranks; 2 if it was asked wrongly."

#: A rank that has several actors is in the first of these states that one of them is in.
_STATES = ("dead", "not-answering", "post-mortem", "stopped", "blocked", "running")
#: So many programs that have ended with a failure are named, of the last day.
_FAILED = 3
_DAY = 86400
_COMMAND = 60


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="meshrt ps", description=_ABOUT, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show ranks; -vv: each in a row of its own")
    parser.add_argument("--ranks", metavar="SELECTION", default="", help="only these, as in 'ranks(stopped & hosts=1)'")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="json: one object (docs/json.md)")
    parser.add_argument(
        "--seconds", type=seconds_of, default=1.0, metavar="S", help="wait so long for programs that are silent (1)"
    )
    given = parser.parse_args(arguments)
    return run_command("meshrt ps", lambda: _show(given))


def _show(given: argparse.Namespace) -> int:
    if given.ranks:
        parse(given.ranks)  # what is no selection is no program's fault

    def ask(connection: ToolConnection) -> Body:
        body = connection.request("debug.status", {})
        if given.verbose or given.ranks:
            asked = {"state": "all", "ranks": given.ranks, "memory": True}
            body.update(connection.request("debug.list", asked), selected=bool(given.ranks))
        return body

    found = survey(programs(), ask, given.seconds)
    # Which programs have such ranks? Those that have none are left out, unless that is all there is to say.
    having = [each for each in found if not each.refused and (each.why or not given.ranks or each.body["rows"])]
    found = having or found
    failed, more = _failed_runs()
    if given.format == "json":
        shown = [_record(each, every=bool(given.verbose)) for each in found]
        Recorder(sys.stdout)({"command": "ps", "programs": shown, "failed": failed, "failed_left_out": more})
    else:
        write_out(sys.stdout, _text(found, failed, given.verbose) + _more(more))
    return 1 if any(each.why for each in found) else 0


def states_of(body: Body) -> dict[str, Counter[str]]:
    """Return how many ranks of each mesh are in which state, by mesh id."""
    words: dict[tuple[str, int], str] = {}

    def note(mesh: str, ranks: Iterable[int], state: str) -> None:
        for rank in ranks:
            before = words.get((mesh, rank), state)
            words[mesh, rank] = min(before, state, key=_STATES.index)

    if body.get("selected"):
        for row in body["rows"]:
            note(row["mesh"], [row["rank"]], row["state"])
    else:
        for group in body["groups"]:
            note(group["mesh"], parse_folded(group["ranks"]), group["state"])
        for mesh in body["meshes"]:
            for ranks in mesh["gone"].values():
                note(mesh["mesh"], parse_folded(ranks), "dead")
    counts: dict[str, Counter[str]] = {}
    for (mesh_id, _), word in words.items():
        counts.setdefault(mesh_id, Counter())[word] += 1
    if not body.get("selected"):
        for mesh in body["meshes"]:  # one without actors: its ranks live, and wait for one
            known = counts.setdefault(mesh["mesh"], Counter())
            idle = mesh["alive"] - (known.total() - known["dead"])
            if idle > 0:
                known["running"] += idle
    return counts


def _record(found: Found, *, every: bool) -> dict[str, Any]:
    program = found.program
    facts = {
        "program": program.run_id, "pid": program.pid, "argv": program.argv, "cwd": program.cwd,
        "started": program.started, "run_directory": str(program.run_directory), "problem": found.why,
    }  # fmt: skip
    if found.why:
        return {**facts, "meshes": []}
    counts = states_of(found.body)
    meshes = [{**mesh, "states": counts.get(mesh["mesh"], {})} for mesh in found.body["meshes"]]
    rows = {"rows": found.body["rows"], "left_out": found.body["left_out"]} if every else {}
    return {**facts, "meshes": meshes, **rows}


def _text(found: list[Found], failed: list[dict[str, Any]], verbose: int) -> str:
    if not found:
        lines = ["no meshrt program of this user is running"]
    elif verbose:
        lines = [line for each in found for line in _in_full(each, fold=verbose < 2)]
    else:
        lines = [_overview(found)]
    lines += [f"failed {since(run['time'])} ago: {run['cause']}; meshrt postmortem {run['program']}" for run in failed]
    return clean("\n".join(lines)) + "\n"


def _overview(found: list[Found]) -> str:
    from tabulate import tabulate  # start-up: only where a table is shown

    rows = []
    for each in found:
        program, (ranks, meshes) = each.program, _ranks_and_meshes(each)
        rows.append((program.run_id, program.pid, since(program.started), ranks, meshes, command_of(program, _COMMAND)))
    headers = ("PROGRAM", "PID", "AGE", "RANKS", "MESHES", "COMMAND")
    return tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True)


def _ranks_and_meshes(found: Found) -> tuple[str, str]:
    if found.why:
        return found.why.partition("\n")[0], ""
    counts = states_of(found.body)
    total: Counter[str] = sum(counts.values(), Counter())
    meshes = [mesh for mesh in found.body["meshes"] if mesh["mesh"] in counts]
    return _counted(total), "; ".join(map(_mesh, meshes)) or "none"


def _counted(states: Mapping[str, int]) -> str:
    """``"16: 15 running, 1 stopped"``."""
    each = ", ".join(f"{states[word]} {word}" for word in reversed(_STATES) if states.get(word))
    return f"{sum(states.values())}: {each}" if each else "0"


def _mesh(mesh: Body) -> str:
    sizes = ",".join(f"{label}={size}" for label, size in mesh["sizes"])
    return f"{mesh['name'] or mesh['mesh']}{{{sizes}}} {','.join(mesh['actors']) or '(no actors)'}"


def _in_full(found: Found, *, fold: bool) -> list[str]:
    program = found.program
    lines = [f"{program.run_id}  pid {program.pid}, {since(program.started)}: {command_of(program)} (in {program.cwd})"]
    if found.why:
        return [*lines, *(f"  {line}" for line in found.why.splitlines()), ""]
    counts = states_of(found.body)
    for mesh in (mesh for mesh in found.body["meshes"] if mesh["mesh"] in counts):
        lines.append(f"  {_mesh(mesh)}: ranks {_counted(counts.get(mesh['mesh'], {}))}")
        lines += [f"    gone: {ranks} ({how})" for how, ranks in mesh["gone"].items()]
    if found.body["rows"]:
        lines.append(listing(found.body["rows"], state="all", fold=fold, left_out=found.body["left_out"]))
    return [*lines, ""]


def _more(count: int) -> str:
    return f"+{count} more that have left a failure within a day\n" if count else ""


def _failed_runs() -> tuple[list[dict[str, Any]], int]:
    """The programs that have ended within a day and left a failure, the latest first; and how many there are beyond."""
    ended = [entry for entry in runs() if files.files_of(entry) and not in_use(entry)]
    found = [(path.stat().st_mtime, path) for entry in ended for path in files.files_of(entry)[-1:]]
    latest = sorted((each for each in found if each[0] > time.time_ns() / 1e9 - _DAY), reverse=True)
    shown = [
        {"program": path.parent.name.rpartition("-")[2], "file": str(path), "time": when, "cause": _cause(path)}
        for when, path in latest[:_FAILED]
    ]
    return shown, len(latest) - len(shown)


def _cause(path: Path) -> str:
    try:
        return root_cause(files.read(path))
    except UsageError as error:
        return str(error)
