"""``python -m meshrt.debug``: open the debugger on a running program of this user."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from meshrt.debug.prompt.dumps import open_dump
from meshrt.debug.prompt.entry import run_lines, run_prompt
from meshrt.debug.prompt.records import SCHEMA, error_record
from meshrt.inspect.programs import NoProgram, choose
from meshrt.show.records import Recorder
from meshrt.show.status import run_command
from meshrt.show.streams import open_standard_streams

__all__ = ["main"]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m meshrt.debug",
        description="Look into a running meshrt program: which ranks are stopped, and what they hold.",
        epilog="Without -c a prompt opens; `help` there shows its commands. Without a terminal, commands are read from "
        "standard input. Exit code: 0; 1 if a command failed, or the program does not answer; 2: usage error, or no "
        "such program runs; 130: Ctrl-C.",
    )
    which = "the program to look into, if several run: its id, its pid, or its run directory"
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help=which)
    parser.add_argument("--pid", default="", metavar="RUN", help="the same")
    parser.add_argument(
        "--json", action="store_true", help="write one JSON object for each command instead of text (docs/json.md)"
    )
    parser.add_argument("--open", metavar="FILE", help="look into a file that MESHRT_POST_MORTEM=dump has written")
    parser.add_argument(
        "-c", dest="commands", metavar="COMMAND", action="append", help="obey this command and leave (may be repeated)"
    )
    given = parser.parse_args(argv)
    if given.run and given.pid:
        parser.error(f"one program at a time: expected RUN or --pid RUN, not both ({given.run}, --pid {given.pid})")
    given.run = given.run or given.pid
    if given.run and given.open is not None:
        parser.error(f"--open FILE is of a program that has ended: RUN ({given.run}) does not go with it")
    if given.json and given.open is not None:
        parser.error("--json does not go with --open: the file is JSON itself")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code.

    Args:
        argv: Arguments without the command's name; None: those of this process.
    """
    open_standard_streams()
    return run_command("meshrt debug", lambda: _command(_arguments(argv)))


def _command(given: argparse.Namespace) -> int:
    if given.json:
        return run_command("meshrt debug", lambda: _run(given), _record)
    return _run(given)


def _run(given: argparse.Namespace) -> int:
    if given.open is not None:
        return open_dump(given.open, given.commands)
    program = choose(given.run, how="meshrt debug RUN", asks=not given.json)
    if given.commands is not None or given.json:
        return run_lines(program, given.commands, json=given.json)
    return run_prompt(program)


def _record(error: Exception) -> None:
    """Write the record of an error before any command could run."""
    kind = "UsageError" if isinstance(error, NoProgram) else type(error).__name__
    record = error_record("", str(error), kind)
    if isinstance(error, NoProgram):
        choices = [
            {"pid": each.pid, "run_id": each.run_id, "argv": each.argv, "cwd": each.cwd, "started": each.started}
            for each in error.choices
        ]
        record = {**record, "programs": choices}
    Recorder(sys.stdout, SCHEMA)(record)


if __name__ == "__main__":
    sys.exit(main())
