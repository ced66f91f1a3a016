"""``python -m meshrt.debug``: open the debugger on a running program of this user."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from meshrt.debug.prompt.dumps import open_dump
from meshrt.debug.prompt.entry import run_lines, run_prompt
from meshrt.debug.prompt.records import Recorder, error_record
from meshrt.errors import MeshError
from meshrt.inspect.commands import OutputError, open_standard_streams
from meshrt.inspect.programs import NoProgram, choose

_EXIT_USAGE = 2


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m meshrt.debug",
        description="Look into a running meshrt program: which ranks are stopped, and what they hold.",
        epilog="Without -c a prompt opens; `help` there shows its commands. Without a terminal, commands are read from "
        "standard input. Exit code: 0, or 1 when a command could not be obeyed, or 2 when there is no program.",
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
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    open_standard_streams()
    arguments = _arguments(argv)
    if arguments.open is not None and arguments.json:
        print("--json does not go with --open: the file is JSON itself", file=sys.stderr)
        return _EXIT_USAGE
    try:
        if arguments.open is not None:
            return open_dump(arguments.open, arguments.commands)
        program = choose(arguments.run, how="meshrt debug RUN", asks=not arguments.json)
        if arguments.commands is not None or arguments.json:
            return run_lines(program, arguments.commands, json=arguments.json)
        return run_prompt(program)
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OutputError as error:
        print(error, file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except NoProgram as error:
        if arguments.json:
            choices = [
                {"pid": each.pid, "run_id": each.run_id, "argv": each.argv, "cwd": each.cwd, "started": each.started}
                for each in error.choices
            ]
            Recorder(sys.stdout)({**error_record("", str(error), "UsageError"), "programs": choices})
        else:
            print(error, file=sys.stderr)
        return _EXIT_USAGE
    except (MeshError, OSError) as error:
        why = f"the program cannot be reached: {error}"
        if arguments.json:
            Recorder(sys.stdout)(error_record("", why, type(error).__name__))
        else:
            print(why, file=sys.stderr)
        return _EXIT_USAGE
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
