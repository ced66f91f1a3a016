"""``meshrt memory``: how much memory the ranks of a running program have, and which variables hold it."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.inspect.programs import choose, meant, seconds_of
from meshrt.memory.api import ask
from meshrt.memory.asked import MILLISECONDS
from meshrt.memory.document import Document, read, write
from meshrt.memory.groups import OF_REFERENCES, OF_VARIABLES, grouped
from meshrt.memory.growth import add_growth
from meshrt.memory.look import GROUPINGS, ORDERS, Look
from meshrt.memory.pace import Pace
from meshrt.memory.table import render
from meshrt.memory.totals import growth_of_ranks
from meshrt.memory.units import UNITS
from meshrt.memory.watching import watch
from meshrt.show.records import to_text
from meshrt.show.status import ExitCode, run_command
from meshrt.show.streams import write_out
from meshrt.show.table import columns
from meshrt.show.text import since
from meshrt.transport.tools import ToolConnection, connect

__all__ = ["main"]

#: Lines around the table of a watched view, and its rows, at least.
_AROUND, _LEAST_ROWS = 8, 3

_VARIABLES = "these are written as --vars shows them: self.cache, Trainer.cache, train.CACHE"
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
    run = "the program, by its pid, its id or its run directory, if several run; ranks and variables of this actor only"
    add("words", nargs="*", metavar="[RUN] [ACTOR]", help=run)
    add(
        "--ranks",
        default="",
        metavar="SELECTION",
        help="these ranks only, as in the debugger: 'hosts=0', '0:8', 'stopped'",
    )
    add("--actor", default="", metavar="ACTOR", help="the same")
    variables = "which variables hold memory: of actors, of their classes and modules; or what is inside of this one"
    add("--vars", nargs="?", const="", metavar="NAME", help=f"{variables}, as self.cache")
    add("--frames", action="store_true", help="... and local variables of ranks that stand in the debugger")
    add("--refs", action="store_true", help="what is in shared memory: objects that were put, large arrays of messages")
    add("--holders", metavar="REF", help="... with a name that begins so, each for itself: who holds it")
    add("--exact", action="store_true", help="count variables to the end, however long that takes")
    add("--budget", type=float, metavar="MS", help=f"processor time per rank for --vars ({MILLISECONDS:g} ms)")
    add("--by", default="", choices=GROUPINGS, help="add up; by rank: fold nothing")
    add("--sort", default="", choices=ORDERS, help="the largest first (size, pss, growth), or in this order")
    add("-r", "--reverse", action="store_true", help="the other way round")
    add("-n", dest="most", type=int, metavar="N", help="the N largest, and what the others add up to")
    add("--addresses", action="store_true", help="the IP address of each host, also if there is but one")
    add("--wide", action="store_true", help="all columns, also where the terminal is narrower")
    add("--units", default="auto", choices=UNITS)
    add("--stats-only", action="store_true", help="totals only")
    everything = "one object with all that was seen, in bytes (docs/json.md); options of the table change nothing of it"
    add("--format", default="table", choices=("table", "json"), help=f"a table, or {everything}")
    add("--json", action="store_const", dest="format", const="json", help="the same as --format json")
    add("--save", type=Path, metavar="FILE", help="keep this view for a later --diff")
    add("--open", type=Path, metavar="FILE", help="show a view that was kept, or what a rank wrote at its limit")
    add("--diff", type=Path, metavar="FILE", help="show what has grown since a view that was kept")
    often = "look again and again, and show what grows; variables so seldom that ranks hardly feel it"
    add("--watch", nargs="?", type=seconds_of, const=2.0, metavar="SECONDS", help=often)
    return parser


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit code, as docs/commands.md says."""
    given = _parser().parse_intermixed_args(arguments)
    return run_command("meshrt memory", lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    look = _look(given)
    before = read(given.diff) if given.diff is not None else None
    if given.open is not None:
        document = _kept(given)
        _show(document if before is None else add_growth(document, before), given, look)
        return ExitCode.OK
    program = choose(given.run, how="meshrt memory RUN", ranks=True)
    connection = connect(program, lambda _event, _body: None, lambda: None)
    try:
        if given.watch is not None:
            _watch(connection, given, look, before)
        else:
            document = _first(connection, given)
            if given.holders and not document["references"]:
                raise UsageError(f"no reference has a name that begins with {given.holders!r}; --refs shows all")
            if given.save is not None:
                write(given.save, document)
            _show(document if before is None else add_growth(document, before), given, look)
    finally:
        connection.close()
    return ExitCode.OK


def _kept(given: argparse.Namespace) -> Document:
    document = read(given.open)
    for table, option, wanted in (("variables", "--vars", given.vars), ("references", "--refs", given.refs)):
        if wanted and table not in document:
            raise UsageError(f"{given.open} was kept without {option}: there are no {table} in it")
    return document


def _look(given: argparse.Namespace) -> Look:
    """Return how to show the memory; raises UsageError for options that cannot be combined."""
    given.inside, given.taken = given.vars or "", ""
    if given.inside and not _is_variable(given.inside):  # --vars RUN, --vars ACTOR
        given.words, given.taken, given.inside = [*given.words, given.inside], given.inside, ""
    if len(given.words) > 2 or (given.actor and len(given.words) > 1):
        raise UsageError(f"expected RUN and ACTOR once, not {' '.join(given.words)}")
    given.run, actor = meant(given.words)
    given.actor = given.actor or actor
    asked = given.run or given.actor or given.ranks or given.frames or given.exact or given.inside
    asked = asked or any(each is not None for each in (given.holders, given.budget, given.watch, given.save))
    if given.open is not None and asked:
        raise UsageError(
            "--open shows a file as it was kept; expected it without RUN, ACTOR, --ranks, --holders, --frames, "
            "--exact, --budget, --watch, --save and the name of a variable"
        )
    given.vars = (
        given.vars is not None or given.frames or given.exact or given.budget is not None or given.by in OF_VARIABLES
    )
    given.refs = given.refs or given.holders is not None or given.by == OF_REFERENCES
    if given.format != "json":  # JSON has all rows beside the groups
        if given.by == OF_REFERENCES and given.vars:
            raise UsageError(f"--by {given.by} adds up what is in shared memory; expected it without --vars")
        if given.by in OF_VARIABLES and given.refs:
            raise UsageError(f"--by {given.by} adds up variables; expected it without --refs and --holders")
    if given.watch is not None and given.save is not None:
        raise UsageError("--watch keeps nothing; expected it without --save, or --save alone for a later --diff")
    if given.exact and given.budget is not None:
        raise UsageError("--exact has no limit; expected it without --budget")
    if given.budget is not None and not 0 <= given.budget < float("inf"):
        raise UsageError(f"--budget takes milliseconds, 0 or more, not {given.budget:g}")
    growing = given.watch is not None or given.diff is not None
    if given.sort == "growth" and not growing:
        raise UsageError("growth is seen with --diff or --watch; expected one of them beside --sort growth")
    sort = given.sort or ("growth" if growing else "size")
    ranks = given.holders is None and not given.inside
    width = columns(wide=given.wide)
    return Look(given.by, sort, given.reverse, given.most, given.units, given.stats_only, ranks, given.addresses, width)


def _first(connection: ToolConnection, given: argparse.Namespace) -> Document:
    try:
        return _ask(connection, given, _budget(given))
    except UsageError as error:
        if given.taken and given.taken == given.actor:
            raise UsageError(f"--vars {given.taken}: no variable ({_VARIABLES}), no program; {error}") from error
        if given.actor in given.words:
            raise UsageError(f"no meshrt program {given.actor!r} runs, and {error}") from error
        raise


def _is_variable(text: str) -> bool:
    """Whether a text names a variable, which contains a dot; a run is a number or a directory."""
    return "." in text and not text.startswith((".", "/", "~")) and not Path(text).is_dir()


def _budget(given: argparse.Namespace) -> float | None:
    """Return the processor milliseconds for the variables of one rank; None: no limit."""
    if given.exact:
        return None
    return MILLISECONDS if given.budget is None else float(given.budget)


def _ask(connection: ToolConnection, given: argparse.Namespace, milliseconds: float | None) -> Document:
    return ask(
        connection,
        ranks=_selection(given.ranks),
        actor=given.actor,
        variables=given.inside or given.vars,
        frames=given.frames,
        milliseconds=milliseconds,
        references=given.holders or ("" if given.refs else None),
    )


def _selection(text: str) -> str:
    """Return a selection in the form of the grammar: at a shell it may be typed without brackets, which need quotes."""
    text = text.strip()
    return text if not text or text.startswith("ranks") else f"ranks({text})"


def _show(document: Document, given: argparse.Namespace, look: Look) -> None:
    if given.format == "json":
        groups = {"groups": grouped(document, look.by)} if look.by else {}
        write_out(sys.stdout, to_text({**document, **groups}) + "\n")
    else:
        write_out(sys.stdout, render(document, look) + "\n")


def _watch(connection: ToolConnection, given: argparse.Namespace, look: Look, first: Document | None) -> None:
    """Show growth, look by look, until the user ends it or the program ends."""
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() and given.format != "json" else ""
    if clear and look.most is None:
        tables = 1 if look.by not in ("", "rank") else given.vars + given.refs + look.ranks
        rows = shutil.get_terminal_size().lines // max(1, tables) - _AROUND
        look = replace(look, most=max(_LEAST_ROWS, rows))  # the row that has grown most must stay on the screen

    def show(document: Document, pace: str) -> None:
        if clear:
            write_out(sys.stdout, clear)
        _show(document, given, look)
        if given.format != "json":
            since_first = since(document["since_first"], document["time"])
            when = f"since {given.diff or 'the first look'}, {since_first} ago"
            grown = growth_of_ranks(document, "grown", when, given.units)
            write_out(sys.stdout, f"{grown}\n{pace}\n\n" if pace else f"{grown}\n\n")

    adapts = given.vars and given.budget is None and not given.exact
    pace = Pace(given.watch, _budget(given), adapts=adapts)
    watch(lambda milliseconds: _ask(connection, given, milliseconds), show, pace, first)
