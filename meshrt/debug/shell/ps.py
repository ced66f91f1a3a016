"""``meshrt ps``: the running programs of this user, and what their ranks do."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from msgspec import to_builtins

from meshrt.commandline.command import Arguments
from meshrt.debug.prompt.tables import listing
from meshrt.errors import MeshError, UsageError
from meshrt.escapes import escaped
from meshrt.failure import files
from meshrt.failure.incident import FAILED, HANDLED, INTERRUPTED
from meshrt.failure.showing import root_cause
from meshrt.hooks.facts import Body
from meshrt.inspect.merged import Waits
from meshrt.inspect.operations import Listing, ListRanks, MeshStatus, ProgramStatus, ReadStatus
from meshrt.inspect.programs import choose, command_of
from meshrt.inspect.survey import Found, survey
from meshrt.inspect.waittext import unread_lines, wait_lines
from meshrt.program.words import DEAD, IDLE, NOT_ANSWERING, WORST_FIRST, silence
from meshrt.selection import fold_ranks
from meshrt.show.paging import write_paged
from meshrt.show.records import PS, Recorder
from meshrt.show.status import ExitCode
from meshrt.show.table import Room, columns, table
from meshrt.show.text import broken, since
from meshrt.transport.directories import in_use, runs
from meshrt.transport.tools import ToolConnection, programs
from meshrt.wire.control import Address

__all__ = ["show"]

_Found: TypeAlias = "Found[_Answer]"


_NOT_LISTED = Listing((), 0, "all")
#: Programs that have left a failure within the last day and are named, at most.
_FAILED = 3
_DAY = 86400
_COMMAND = 60
#: Text about a program by the outcome of its failure (`meshrt.failure.incident.Incident.outcome`).
_HOW = {
    FAILED: "failed {} ago",
    HANDLED: "ended {} ago, after a failure that did not end it",
    INTERRUPTED: "was interrupted {} ago",
    "": "was ended {} ago, after a failure",
}


def show(given: Arguments) -> int:
    """Run ``meshrt ps``. Returns the exit code."""

    def ask(connection: ToolConnection) -> _Answer:
        status = connection.ask(ReadStatus(hosts=True))
        if not (given["verbose"] or given["ranks"]):
            return _Answer(status)
        asked = ListRanks("all", ranks=given["ranks"], memory=True, hosts=True)
        return _Answer(status, connection.ask(asked), selected=bool(given["ranks"]))

    wanted = [choose(given["run"], how="meshrt ps RUN")] if given["run"] else programs()
    found = survey(wanted, ask, given["timeout"])
    # Programs without such ranks are left out, unless no program has any.
    having = [
        each
        for each in found
        if not each.refused and (each.answer is None or not given["ranks"] or each.answer.listed.rows)
    ]
    refused = [each for each in found if each.refused]
    if given["ranks"] and refused and not having:
        raise UsageError(_without_ranks(refused))
    found = having or found
    failed, more = ([], 0) if given["run"] else _failed_runs()
    if given["json"]:
        shown = [_record(each, every=bool(given["verbose"])) for each in found]
        Recorder(sys.stdout, PS)({"command": "ps", "programs": shown, "failed": failed, "failed_left_out": more})
    else:
        write_paged(sys.stdout, _text(found, failed, given["verbose"], columns(wide=given["wide"])) + _more(more))
    return ExitCode.FAILED if any(each.why for each in found) else ExitCode.OK


def _without_ranks(refused: Sequence[_Found]) -> str:
    """Return why programs have no ranks as they were chosen; each with its name, if there are several."""
    if len(refused) == 1:
        return refused[0].why
    return "\n".join(["no program has such ranks", *(f"{each.program.run_id}: {each.why}" for each in refused)])


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of a program; ``selected``: only the ranks that are listed are meant."""

    status: ProgramStatus
    listed: Listing = _NOT_LISTED
    selected: bool = False

    def states(self) -> dict[str, Counter[str]]:
        """Return the number of ranks in each state, by mesh id; one with several states counts in the worst one."""
        words: dict[Address, str] = {}

        def note(mesh: str, ranks: Iterable[int], state: str) -> None:
            for rank in ranks:
                before = words.get((mesh, rank), state)
                words[mesh, rank] = min(before, state, key=WORST_FIRST.index)

        if self.selected:
            for row in self.listed.rows:
                note(row.mesh, [row.rank], row.state)
        else:
            for group in self.status.groups:
                note(group.mesh, group.ranks, group.state)
            for mesh in self.status.meshes:
                for state, found in ((DEAD, mesh.gone), (NOT_ANSWERING, mesh.silent)):
                    for ranks in found.values():
                        note(mesh.mesh, ranks, state)
        counts: dict[str, Counter[str]] = {}
        for (mesh_id, _), word in words.items():
            counts.setdefault(mesh_id, Counter())[word] += 1
        if not self.selected:
            for mesh in self.status.meshes:  # ranks without an actor are in no group: they are alive, and wait for one
                known = counts.setdefault(mesh.mesh, Counter())
                idle = mesh.alive - (known.total() - known[DEAD])
                if idle > 0:
                    known[IDLE] += idle
        return counts


def _record(found: _Found, *, every: bool) -> Body:
    program, answer = found.program, found.answer
    facts = {
        "program": program.run_id, "pid": program.pid, "argv": program.argv, "cwd": program.cwd,
        "started": program.started, "run_directory": str(program.run_directory), "problem": found.why,
    }  # fmt: skip
    if answer is None:
        return {**facts, "meshes": []}
    counts = answer.states()
    status = answer.status
    meshes = [{**to_builtins(mesh), "states": counts.get(mesh.mesh, {})} for mesh in status.meshes]
    waits = to_builtins(Waits(status.waits, status.waits_left_out, status.unread))
    rows = {"rows": to_builtins(answer.listed.rows), "left_out": answer.listed.left_out} if every else {}
    return {**facts, "meshes": meshes, **waits, **rows}


def _text(found: Sequence[_Found], failed: list[Body], verbose: int, width: int | None) -> str:
    if not found:
        lines = ["no meshrt program of this user is running"]
    elif verbose:
        lines = [line for each in found for line in _in_full(each, width, fold=verbose < 2)]
    else:
        lines = _overview(found, width)
        further = [
            f"{each.program.run_id}: {line}" for each in found if each.answer for line in _notes(each.answer.status)
        ]
        if width is not None:
            further += [f"{each.program.run_id}: {_reason(each)}" for each in found if each.answer is None]
        lines += [part for line in further for part in broken(line, width, "  ")]
    for run in failed:
        how = _HOW[run["outcome"]].format(since(run["time"]))
        lines += broken(f"{how}: {run['cause']}; meshrt postmortem {run['program']}", width, "  ")
    return escaped("\n".join(lines)) + "\n"


def _notes(status: ProgramStatus) -> list[str]:
    return [*unread_lines(status), *wait_lines(status)]


def _overview(found: Sequence[_Found], width: int | None) -> list[str]:
    rows = []
    for each in found:
        program, (ranks, meshes) = each.program, _ranks_and_meshes(each, whole=width is None)
        rows.append((program.run_id, program.pid, since(program.started), ranks, meshes, command_of(program, _COMMAND)))
    headers = ("PROGRAM", "PID", "AGE", "RANKS", "MESHES", "COMMAND")
    room = Room(width, ("AGE", "COMMAND", "PID"), {"RANKS": 12, "MESHES": 20, "COMMAND": 16})
    return table(headers, rows, room, right=("PID",))


def _reason(found: _Found) -> str:
    return found.why.partition("\n")[0]


def _ranks_and_meshes(found: _Found, *, whole: bool) -> tuple[str, str]:
    """Return what a program has; ``whole``: with the reason if it does not answer, which must not be cut."""
    if found.answer is None:
        return _reason(found) if whole else "no answer", ""
    counts = found.answer.states()
    total: Counter[str] = sum(counts.values(), Counter())
    meshes = [mesh for mesh in found.answer.status.meshes if mesh.mesh in counts]
    # The state says that a rank does not answer. If its host does not answer, the rank may run: that is added.
    hosts = f" ({silence('host')}: may be running)" if any(silence("host") in mesh.silent for mesh in meshes) else ""
    return _counted(total) + hosts, "; ".join(map(_mesh, meshes)) or "none"


def _counted(states: Mapping[str, int]) -> str:
    """Return a summary of states: ``"16: 15 running, 1 stopped"``."""
    each = ", ".join(f"{states[word]} {word}" for word in reversed(WORST_FIRST) if states.get(word))
    return f"{sum(states.values())}: {each}" if each else "0"


def _mesh(mesh: MeshStatus) -> str:
    sizes = ",".join(f"{label}={size}" for label, size in mesh.sizes)
    shape = f"{{{sizes}}}" if sizes else ""
    return f"{mesh.name or mesh.mesh}{shape} {','.join(mesh.actors) or '(no actors)'}"


def _in_full(found: _Found, width: int | None, *, fold: bool) -> list[str]:
    program = found.program
    lines = [f"{program.run_id}  pid {program.pid}, {since(program.started)}: {command_of(program)} (in {program.cwd})"]
    answer = found.answer
    if answer is None:
        return [*lines, *(f"  {line}" for line in found.why.splitlines()), ""]
    counts = answer.states()
    for mesh in (mesh for mesh in answer.status.meshes if mesh.mesh in counts):
        lines.append(f"  {_mesh(mesh)}: ranks {_counted(counts.get(mesh.mesh, {}))}")
        lines += [f"    ended: {fold_ranks(ranks)} ({how})" for how, ranks in mesh.gone.items()]
        lines += [f"    not answering: {fold_ranks(ranks)} ({why})" for why, ranks in mesh.silent.items()]
    lines += [f"  {line}" for line in _notes(answer.status)]
    rows, left_out = answer.listed.rows, answer.listed.left_out
    if rows:
        lines.append(listing(rows, state="all", fold=fold, left_out=left_out, width=width))
    return [*lines, ""]


def _more(count: int) -> str:
    return f"+{count} more with a failure within the last day\n" if count else ""


def _failed_runs() -> tuple[list[Body], int]:
    """Return at most `_FAILED` programs that have left a failure within a day, the latest first; and how many more."""
    ended = [entry for entry in runs() if files.files_of(entry) and not in_use(entry)]
    found = [(path.stat().st_mtime, path) for entry in ended for path in files.files_of(entry)[-1:]]
    latest = sorted((each for each in found if each[0] > time.time_ns() / 1e9 - _DAY), reverse=True)
    return [_failure(when, path.parent) for when, path in latest[:_FAILED]], max(0, len(latest) - _FAILED)


def _failure(when: float, run: Path) -> Body:
    """Return the failure that has ended a program, or else the last one that it had."""
    facts = {"program": run.name.rpartition("-")[2], "time": when}
    found = []
    for path in files.files_of(run):
        try:
            found.append((path, files.read(path)))
        except MeshError as error:
            last = {"file": str(path), "outcome": "", "cause": str(error)}
    if not found:
        return {**facts, **last}
    path, incident = next((each for each in reversed(found) if each[1].outcome in (FAILED, INTERRUPTED)), found[-1])
    return {**facts, "file": str(path), "outcome": incident.outcome, "cause": root_cause(incident)}
