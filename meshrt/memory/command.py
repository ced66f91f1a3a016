"""How ``memory`` and ``vars`` are asked and shown: at the prompt, and in a shell with files and again and again."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from msgspec import to_builtins

from meshrt.commandline.command import Arguments, Values
from meshrt.errors import UsageError
from meshrt.hooks.operations import Connection
from meshrt.inspect.programs import choose, meant, telling_slow
from meshrt.memory.api import ask
from meshrt.memory.document import Document, plain, read, write
from meshrt.memory.groups import OF_REFERENCES, OF_VARIABLES, grouped
from meshrt.memory.growth import add_growth
from meshrt.memory.look import Look
from meshrt.memory.operations import MILLISECONDS, LookAtMemory
from meshrt.memory.table import render
from meshrt.memory.totals import growth_of_ranks
from meshrt.memory.watching import Pace, watch
from meshrt.show.paging import write_paged
from meshrt.show.records import MEMORY, refuse_to_overwrite, to_text
from meshrt.show.status import ExitCode
from meshrt.show.streams import pause, write_out
from meshrt.show.table import columns
from meshrt.show.text import since
from meshrt.transport.tools import connect
from meshrt.transport.writing import check_place

__all__ = ["check", "show", "view"]

#: Lines around the table of a watched view, and its rows, at least.
_AROUND, _LEAST_ROWS = 8, 3

_VARIABLES = "these are written as --vars shows them: self.cache, Trainer.cache, train.CACHE"

#: What no option has set, for a command that has fewer options; ``alone``: no table of ranks beside that of variables.
_DEFAULTS: Arguments = {
    "by": "", "sort": "", "reverse": False, "most": None, "wide": False, "only": "", "vars": None, "frames": False,
    "refs": False, "holders": None, "exact": False, "budget": None, "addresses": False, "units": "auto",
    "stats_only": False, "alone": False,
}  # fmt: skip
#: What only a shell has.
_SHELL: Arguments = {
    "run": "", "format": "table", "save": None, "force": False, "open": None, "diff": None, "watch": None,
}  # fmt: skip


def check(arguments: Values) -> None:
    """Complete the arguments of a line. Raises UsageError for options that cannot be combined.

    Adds ``named`` (the program of ``--program``), ``words`` (RUN and ACTOR as they were typed), ``inside`` (the
    variable to open), ``taken`` (the word behind ``--vars``, if it is not a variable) and ``look``; ``vars`` and
    ``refs`` become True or False.
    """
    given = arguments
    given.update({**_DEFAULTS, **_SHELL, **given})
    given["inside"], given["taken"] = given["vars"] or "", ""
    words = [word for word in (given["run"], given["actor"]) if word]
    if given["inside"] and not _is_variable(given["inside"]):  # --vars RUN, --vars ACTOR
        words, given["taken"], given["inside"] = [*words, given["inside"]], given["inside"], ""
    program = given.get("program", "")
    if len(words) > 2 - bool(program) or (given["only"] and len(words) > 1 - bool(program)):
        raise UsageError(f"expected RUN and ACTOR once, not {' '.join(filter(None, (program, *words)))}")
    given["words"], given["named"] = words, program
    given["run"] = "" if program else given["run"]  # behind --program there is no RUN: the word is the actor
    asked = program or words or any(given[name] for name in ("only", "ranks", "frames", "exact", "inside"))
    asked = asked or any(given[name] is not None for name in ("holders", "budget", "watch", "save"))
    if given["open"] is not None and asked:
        raise UsageError(
            "--open shows a file as it was saved; expected --open without RUN, ACTOR, --ranks, --holders, --frames, "
            "--exact, --budget, --watch, --save and the name of a variable"
        )
    by = given["by"]
    given["vars"] = (
        given["vars"] is not None
        or given["frames"]
        or given["exact"]
        or given["budget"] is not None
        or by in OF_VARIABLES
    )
    given["refs"] = given["refs"] or given["holders"] is not None or by == OF_REFERENCES
    if given["format"] != "json":  # JSON has all rows beside the groups
        if by == OF_REFERENCES and given["vars"]:
            raise UsageError(f"--by {by} adds up references in shared memory; expected --by {by} without --vars")
        if by in OF_VARIABLES and given["refs"]:
            raise UsageError(f"--by {by} adds up variables; expected --by {by} without --refs and --holders")
    if given["watch"] is not None and given["save"] is not None:
        raise UsageError("--watch cannot be combined with --save; use --save alone, for a later --diff")
    if given["exact"] and given["budget"] is not None:
        raise UsageError("--exact cannot be combined with --budget: --exact has no time limit")
    if given["budget"] is not None and not 0 <= given["budget"] < float("inf"):
        raise UsageError(f"--budget takes milliseconds, 0 or more, not {given['budget']:g}")
    growing = given["watch"] is not None or given["diff"] is not None
    if given["sort"] == "growth" and not growing:
        raise UsageError("--sort growth needs --diff or --watch of meshrt memory, in a shell")
    given["look"] = Look(
        by,
        given["sort"] or ("growth" if growing else "size"),
        given["reverse"],
        given["most"],
        given["units"],
        given["stats_only"],
        ranks=given["holders"] is None and not given["inside"] and not given["alone"],
        addresses=given["addresses"],
        width=columns(wide=given["wide"]),
    )


def view(connection: Connection, arguments: Arguments) -> tuple[str, Document]:
    """Return the memory of the program at the other end of a connection: as a table, and as data.

    Args:
        arguments: As `check` has completed them.
    Raises:
        UsageError: There is no such actor, variable or reference.
    """
    words = arguments["words"]
    given = {**arguments, "actor": arguments["only"] or (words[0] if words else "")}
    document = _first(connection, given, in_shell=False)
    return render(document, given["look"]), document


def show(arguments: Arguments) -> int:
    """Run ``meshrt memory``. Returns its exit code, as docs/commands.md says."""
    given, look = dict(arguments), arguments["look"]
    _refuse_two_files(given)
    before = read(given["diff"]) if given["diff"] is not None else None
    if given["open"] is not None:
        document = _kept(given)
        _show(document if before is None else add_growth(document, before), given, look)
        return ExitCode.OK
    if given["save"] is not None:
        check_place(given["save"])
        if not given["force"]:
            refuse_to_overwrite(given["save"], MEMORY)
    words = given["words"]
    run, actor = (given["named"], "".join(words)) if given["named"] else meant(words)
    given["actor"] = given["only"] or actor
    program = choose(run, how="meshrt memory RUN", asks=given["format"] != "json", ranks=True)
    with telling_slow(program):
        connection = connect(program)
    with contextlib.closing(connection):
        if given["watch"] is not None:
            _watch(connection, given, look, before)
        else:
            document = _first(connection, given, in_shell=True)
            if given["save"] is not None:
                write(given["save"], document)
            _show(document if before is None else add_growth(document, before), given, look)
    return ExitCode.OK


def _refuse_two_files(given: Arguments) -> None:
    """Raise UsageError for ``--diff FILE FILE``: the second one would be a program or an actor."""
    for word in given["words"] if given["diff"] is not None and given["open"] is None else ():
        if Path(word).suffix == ".json" or Path(word).is_file():
            raise UsageError(
                f"--diff takes one file, and compares it with the program that runs; expected --open {word} --diff "
                f"{given['diff']} to compare two files, the later one with the earlier one"
            )


def _kept(given: Arguments) -> Document:
    document = read(given["open"])
    for table, option, wanted in (("variables", "--vars", given["vars"]), ("references", "--refs", given["refs"])):
        if wanted and getattr(document, table) is None:
            raise UsageError(f"{given['open']} was saved without {option}: it contains no {table}")
    return document


def _first(connection: Connection, given: Arguments, *, in_shell: bool) -> Document:
    try:
        document = _ask(connection, given, _budget(given))
    except UsageError as error:
        if given["taken"] and given["taken"] == given["actor"]:
            raise UsageError(f"--vars {given['taken']}: not a variable ({_VARIABLES}) or program; {error}") from error
        if in_shell and not given["named"] and given["actor"] in given["words"]:
            raise UsageError(f"no meshrt program {given['actor']!r} is running, and {error}") from error
        raise
    if given["holders"] and not document.references:
        raise UsageError(f"no reference has a name that begins with {given['holders']!r}; --refs shows all")
    return document


def _is_variable(text: str) -> bool:
    """Whether a text names a variable, which contains a dot; a run is a number or a directory."""
    return "." in text and not text.startswith((".", "/", "~")) and not Path(text).is_dir()


def _budget(given: Arguments) -> float | None:
    """Return the processor milliseconds for the variables of one rank; None: no limit."""
    if given["exact"]:
        return None
    return MILLISECONDS if given["budget"] is None else float(given["budget"])


def _ask(connection: Connection, given: Arguments, milliseconds: float | None) -> Document:
    look = LookAtMemory(
        ranks=given["ranks"],
        actor=given["actor"],
        variables=bool(given["inside"]) or given["vars"],
        opened=given["inside"],
        frames=given["frames"],
        milliseconds=milliseconds,
        references=given["holders"] or ("" if given["refs"] else None),
    )
    return ask(connection, look)


def _show(document: Document, given: Arguments, look: Look) -> None:
    if given["format"] == "json":
        groups = {"groups": to_builtins(grouped(document, look.by))} if look.by else {}
        write_out(sys.stdout, to_text(plain(document, **groups)) + "\n")
    else:
        show = write_out if given["watch"] else write_paged
        show(sys.stdout, render(document, look) + "\n")


def _watch(connection: Connection, given: Arguments, look: Look, first: Document | None) -> None:
    """Show growth, look by look, until the user ends it or the program ends."""
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() and given["format"] != "json" else ""
    if clear and look.most is None:
        tables = 1 if look.by not in ("", "rank") else given["vars"] + given["refs"] + look.ranks
        rows = shutil.get_terminal_size().lines // max(1, tables) - _AROUND
        look = replace(look, most=max(_LEAST_ROWS, rows))  # the row that has grown most must stay on the screen

    def show(document: Document, pace: str) -> None:
        if clear:
            write_out(sys.stdout, clear)
        _show(document, given, look)
        if given["format"] != "json":
            since_first = since(document.since_first or document.time, document.time)
            when = f"since {given['diff'] or 'the first look'}, {since_first} ago"
            grown = growth_of_ranks(document, "grown", when, given["units"])
            write_out(sys.stdout, f"{grown}\n{pace}\n\n" if pace else f"{grown}\n\n")

    adapts = given["vars"] and given["budget"] is None and not given["exact"]
    pace = Pace(given["watch"], _budget(given), adapts=adapts)
    wait = functools.partial(pause, sys.stdout)
    watch(lambda milliseconds: _ask(connection, given, milliseconds), show, wait, pace, first)
