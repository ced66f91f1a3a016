"""``meshrt memory``: how much memory the ranks of a running program have, and which variables hold it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.inspect.commands import run_command, write_out
from meshrt.inspect.programs import choose
from meshrt.memory.api import ask
from meshrt.memory.document import Document, read, write
from meshrt.memory.groups import OF_REFERENCES, OF_VARIABLES, grouped
from meshrt.memory.growth import add_growth
from meshrt.memory.look import GROUPINGS, ORDERS, Look
from meshrt.memory.root import MILLISECONDS
from meshrt.memory.table import render
from meshrt.memory.units import UNITS, change
from meshrt.transport.tools import ToolConnection, connect

__all__ = ["main"]

_ABOUT = """Show how much memory the ranks of a running program have and, with --vars, which variables hold it.

Ranks are measured by their host agents: one that is stopped, hangs, or holds the GIL in C has its row too. Sizes of
variables are marked: = is exact, >= was counted until the time was over, ~ is an estimate of the whole. Nothing of the
program is run to measure it, and nothing is stopped."""
_EPILOG = "docs/memory.md finds a leak step by step; docs/commands.md has the exit codes."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="meshrt memory", description=_ABOUT, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="the program, by its pid or its id, if several run")
    add(
        "--ranks",
        default="",
        metavar="SELECTION",
        help="these ranks only, as in the debugger: 'hosts=0', '0:8', 'stopped'",
    )
    add("--actor", default="", metavar="ACTOR", help="ranks and variables of this actor only")
    add("--vars", action="store_true", help="which variables hold memory: of actors, of their classes and modules")
    add("--frames", action="store_true", help="... and local variables of ranks that stand in the debugger")
    add("--refs", action="store_true", help="what is in shared memory: objects that were put, large arrays of messages")
    add("--holders", metavar="REF", help="... with a name that begins so, each for itself: who holds it")
    add("--exact", action="store_true", help="count variables to the end, however long that takes")
    add("--budget", type=float, metavar="MS", help=f"processor time per rank for --vars ({MILLISECONDS:g} ms)")
    add("--by", default="", choices=GROUPINGS, help="add up; by rank: fold nothing")
    add("--sort", default="", choices=ORDERS, help="the largest first (size, pss, growth), or in this order")
    add("-r", "--reverse", action="store_true", help="the other way round")
    add("-n", dest="most", type=int, metavar="N", help="the N largest, and what the others add up to")
    add("--units", default="auto", choices=UNITS)
    add("--stats-only", action="store_true", help="totals only")
    add("--format", default="table", choices=("table", "json"), help="json: docs/json.md says what is in it")
    add("--save", type=Path, metavar="FILE", help="keep this view for a later --diff")
    add("--open", type=Path, metavar="FILE", help="show a view that was kept, or what a rank wrote at its limit")
    add("--diff", type=Path, metavar="FILE", help="show what has grown since a view that was kept")
    watch = "look again and again, and show what grows (not of variables, whose count would slow ranks down)"
    add("--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help=watch)
    return parser


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit code, as docs/commands.md has it."""
    given = _parser().parse_args(arguments)
    return run_command("meshrt memory", lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    look = _look(given)
    before = read(given.diff) if given.diff is not None else None
    if given.open is not None:
        document = read(given.open)
        _show(document if before is None else add_growth(document, before), given, look)
        return 0
    program = choose(given.run or "", how="its pid: meshrt memory PID")
    connection = connect(program, lambda _event, _body: None, lambda: None)
    try:
        if given.watch is not None:
            _watch(connection, given, look)
        else:
            document = _ask(connection, given)
            if given.holders and not document["references"]:
                raise UsageError(f"no reference has a name that begins with {given.holders!r}; --refs shows all")
            if given.save is not None:
                write(given.save, document)
            _show(document if before is None else add_growth(document, before), given, look)
    except KeyboardInterrupt:
        if given.watch is None:
            raise
    finally:
        connection.close()
    return 0


def _look(given: argparse.Namespace) -> Look:
    """Return how it is to be shown; raises UsageError for options that do not go together."""
    if given.open is not None and (given.run or given.watch is not None or given.save is not None):
        raise UsageError("--open shows a file; expected it without RUN, --watch and --save")
    given.vars = given.vars or given.frames or given.exact or given.budget is not None or given.by in OF_VARIABLES
    given.refs = given.refs or given.holders is not None or given.by == OF_REFERENCES
    if given.watch is not None:
        if given.vars or given.save is not None or given.diff is not None:
            raise UsageError("--watch looks at ranks only; expected it without --vars, --frames, --save and --diff")
        if not given.watch > 0:
            raise UsageError(f"--watch takes a number of seconds above 0, not {given.watch:g}")
    if given.exact and given.budget is not None:
        raise UsageError("--exact has no limit; expected it without --budget")
    if given.budget is not None and not 0 <= given.budget < float("inf"):
        raise UsageError(f"--budget takes milliseconds, 0 or more, not {given.budget:g}")
    growing = given.watch is not None or given.diff is not None
    if given.sort == "growth" and not growing:
        raise UsageError("growth is seen with --diff or --watch; expected one of them beside --sort growth")
    sort = given.sort or ("growth" if growing else "size")
    return Look(given.by, sort, given.reverse, given.most, given.units, given.stats_only, ranks=given.holders is None)


def _ask(connection: ToolConnection, given: argparse.Namespace) -> Document:
    budget = MILLISECONDS if given.budget is None else given.budget
    return ask(
        connection,
        ranks=_selection(given.ranks),
        actor=given.actor,
        variables=given.vars,
        frames=given.frames,
        milliseconds=None if given.exact else budget,
        references=given.holders or ("" if given.refs else None),
    )


def _selection(text: str) -> str:
    """Return a selection as the grammar has it: at a shell nobody wants to quote brackets."""
    text = text.strip()
    return text if not text or text.startswith("ranks") else f"ranks({text})"


def _show(document: Document, given: argparse.Namespace, look: Look) -> None:
    if given.format == "json":
        groups = {"groups": grouped(document, look.by)} if look.by else {}
        write_out(sys.stdout, json.dumps({**document, **groups}) + "\n")
    else:
        write_out(sys.stdout, render(document, look) + "\n")


def _watch(connection: ToolConnection, given: argparse.Namespace, look: Look) -> None:
    """Show growth per tick until the person, or the program, has enough."""
    before = _ask(connection, given)
    first = before["totals"]["rss"]
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() and given.format == "table" else ""
    while True:
        time.sleep(given.watch)
        document = _ask(connection, given)
        if clear:
            write_out(sys.stdout, clear)
        _show(add_growth(document, before), given, look)
        if given.format == "table":
            grown = change(document["totals"]["rss"] - first, given.units)
            write_out(sys.stdout, f"since the first look: {grown}\n\n")
        before = document
