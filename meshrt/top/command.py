"""``meshrt top``: the ranks of a running program on a screen, in a browser, or as one table."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading

from meshrt.commandline.command import Arguments
from meshrt.errors import UsageError
from meshrt.inspect.programs import choose, telling_slow
from meshrt.show.installing import install_extra
from meshrt.show.records import to_text
from meshrt.show.status import ExitCode
from meshrt.show.streams import write_out
from meshrt.top.asking import Asking
from meshrt.top.columns import Sorting
from meshrt.top.model import Model
from meshrt.top.table import document, table
from meshrt.transport.tools import Program

__all__ = ["show"]

#: Environment variable by which textual-serve connects the screen to a browser.
_DRIVER = "TEXTUAL_DRIVER"


def show(given: Arguments) -> int:
    """Run ``meshrt top``. Returns the exit code."""
    if not given["once"]:
        _need("textual", *(("textual_serve",) if given["serve"] else ()))
    sorting = Sorting(given["sort"], given["reverse"])
    if not given["once"] and not given["serve"] and not _has_screen():
        raise UsageError("the screen needs a terminal; expected a terminal, --once or --serve")
    program = choose(given["run"], how="meshrt top RUN", asks=not given["json"])
    if given["once"]:
        return _once(program, given, sorting)
    if given["serve"]:
        from meshrt.top.serving import serve  # optional: needs textual-serve

        serve(program, given, given["host"], given["port"])
        return ExitCode.OK
    from meshrt.top.screen.app import TopApp  # optional: needs textual

    with telling_slow(program):
        ranks = given["ranks"].removeprefix("ranks(").removesuffix(")")  # as it is typed on the screen
        app = TopApp(program, ranks=ranks, actor=given["actor"], sorting=sorting, every=given["every"])
    app.run()
    return app.return_code or ExitCode.OK


def _need(*modules: str) -> None:
    """Raise UsageError if one of the modules is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        what = missing[0].replace("_", "-")
        how = install_extra("top", "textual", "textual-serve")
        raise UsageError(f"needs {what} (meshrt top --once shows one table without it); to install it: {how}")


def _has_screen() -> bool:
    return bool(os.environ.get(_DRIVER)) or (sys.stdin.isatty() and sys.stdout.isatty())


def _once(program: Program, given: Arguments, sorting: Sorting) -> int:
    model, ended = Model(), threading.Event()
    with telling_slow(program):
        asking = Asking(program, ended.set)
    chosen = bool(given["ranks"] or given["actor"])
    with contextlib.closing(asking):
        # The first look makes ranks load the code for the answer; rates and growth are measured between the other two.
        for _ in range(2):
            model.take(asking.look(given["ranks"], given["actor"]), chosen=chosen)
        ended.wait(given["every"])
        model.take(asking.look(given["ranks"], given["actor"]), chosen=chosen)
    if given["json"]:
        facts = {"program": program.run_id, "pid": program.pid, "argv": program.argv}
        write_out(sys.stdout, to_text(document(model, sorting, facts)) + "\n")
    else:
        write_out(sys.stdout, table(model, sorting) + "\n")
    return ExitCode.OK
