"""``meshrt top``: the ranks of a running program on a screen, in a browser, or as one table."""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import os
import sys
import threading

from meshrt.errors import UsageError
from meshrt.inspect.installing import install_extra
from meshrt.inspect.programs import choose, seconds_of, telling_slow
from meshrt.selection import parse
from meshrt.show.records import to_text
from meshrt.show.status import ExitCode, run_command
from meshrt.show.streams import write_out
from meshrt.top.asking import Asking
from meshrt.top.columns import COLUMNS, Sorting
from meshrt.top.model import Model
from meshrt.top.table import document, table
from meshrt.transport.tools import Program

__all__ = ["main"]

_ABOUT = """Show the ranks of a running program, again and again: state, processor, memory, calls, what waits for them.

On the screen, Enter shows the stacks, variables and log of a rank, / takes a selection, ? shows all keys. Ranks that
are stopped, hang, or hold the GIL are shown like all others: host agents read what they use from /proc. Nobody is
stopped, or changed, by being looked at.

RUN is the id or the pid of a program, as meshrt ps shows it; without it, it is the one that runs."""


_EPILOG = "Exit code: 0; 1 if the program ends before it answers; 2: usage error, or textual is missing."

#: Seconds between two looks.
EVERY = 1.0
_HOST, _PORT = "localhost", 8000
#: Environment variable by which textual-serve connects the screen to a browser.
_DRIVER = "TEXTUAL_DRIVER"


def main(arguments: list[str]) -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="meshrt top", description=_ABOUT, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", nargs="?", default="", metavar="RUN", help="the program, if several run")
    add("--ranks", metavar="SELECTION", default="", help="only these, as in 'ranks(0:4)', 'hosts=1' or 'stopped'")
    add("--actor", metavar="ACTOR", default="", help="only ranks of this actor")
    names = [each.name for each in COLUMNS]
    add("--sort", default="rank", choices=names, metavar="COLUMN", help=f"one of {', '.join(names)} (rank)")
    add("-r", "--reverse", action="store_true", help="the other way round")
    add("--every", type=seconds_of, default=EVERY, metavar="S", help=f"seconds between two looks ({EVERY:g})")
    add("--once", action="store_true", help="one table, of looks that far apart; needs no textual")
    add("--json", action="store_true", help="with --once: one object, docs/json.md says what is in it")
    add("--serve", action="store_true", help="in a browser: whoever reaches the port sees the program")
    add("--host", default=None, metavar="ADDRESS", help=f"with --serve: listen there ({_HOST}: this machine only)")
    add("--port", type=int, default=None, metavar="PORT", help=f"with --serve ({_PORT})")
    given = parser.parse_args(arguments)
    return run_command("meshrt top", lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    if given.json and not given.once:
        raise UsageError("--json writes one object; expected --once beside it")
    if given.once and given.serve:
        raise UsageError("--once is one table; expected it without --serve")
    if not given.serve and (given.host is not None or given.port is not None):
        raise UsageError("--host and --port are for a browser; expected --serve beside them")
    if given.host is not None and _all_interfaces(given.host):
        raise UsageError(f"--host {given.host!r}: expected one address of this machine, not all of them")
    if given.port is not None and not 0 < given.port < 65536:
        raise UsageError(f"--port takes a number from 1 to 65535, not {given.port}")
    if given.ranks:
        parse(given.ranks)  # an invalid selection is reported before any request
    if not given.once:
        _need("textual", *(("textual_serve",) if given.serve else ()))
    sorting = Sorting(given.sort, given.reverse)
    if not given.once and not given.serve and not _has_screen():
        raise UsageError("the screen needs a terminal; expected one, or --once, or --serve")
    program = choose(given.run, how="meshrt top RUN")
    if given.once:
        return _once(program, given, sorting)
    if given.serve:
        from meshrt.top.serving import serve  # optional: needs textual-serve

        serve(program, given, given.host or _HOST, given.port or _PORT)
        return ExitCode.OK
    from meshrt.top.screen.app import TopApp  # optional: needs textual

    with telling_slow(program):
        app = TopApp(program, ranks=given.ranks, actor=given.actor, sorting=sorting, every=given.every)
    app.run()
    return app.return_code or ExitCode.OK


def _all_interfaces(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return not host


def _need(*modules: str) -> None:
    """Raise UsageError if one of the modules is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        what = missing[0].replace("_", "-")
        how = install_extra("top", "textual", "textual-serve")
        raise UsageError(f"needs {what} (meshrt top --once shows one table without it); to install it: {how}")


def _has_screen() -> bool:
    return bool(os.environ.get(_DRIVER)) or (sys.stdin.isatty() and sys.stdout.isatty())


def _once(program: Program, given: argparse.Namespace, sorting: Sorting) -> int:
    model, ended = Model(), threading.Event()
    with telling_slow(program):
        asking = Asking(program, ended.set)
    chosen = bool(given.ranks or given.actor)
    try:
        # The first look makes ranks load the code for the answer; rates and growth are measured between the other two.
        for _ in range(2):
            model.take(asking.look(given.ranks, given.actor), chosen=chosen)
        ended.wait(given.every)
        model.take(asking.look(given.ranks, given.actor), chosen=chosen)
    finally:
        asking.close()
    if given.json:
        facts = {"program": program.run_id, "pid": program.pid, "argv": program.argv}
        write_out(sys.stdout, to_text(document(model, sorting, facts)) + "\n")
    else:
        write_out(sys.stdout, table(model, sorting) + "\n")
    return ExitCode.OK
