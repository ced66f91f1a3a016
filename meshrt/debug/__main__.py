"""``python -m meshrt.debug``: open the debugger on a running program of this user."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from meshrt.debug.prompt.dumps import open_dump
from meshrt.debug.prompt.entry import run_lines, run_prompt
from meshrt.debug.prompt.records import Recorder, error_record
from meshrt.debug.prompt.terminal import OutputError
from meshrt.debug.protocol import since
from meshrt.errors import MeshError, UsageError
from meshrt.transport.tools import Program, programs

_EXIT_USAGE = 2


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m meshrt.debug",
        description="Look into a running meshrt program: which ranks are stopped, and what they hold.",
        epilog="Without -c a prompt opens; `help` there shows its commands. Without a terminal, commands are read from "
        "standard input. Exit code: 0, or 1 when a command could not be obeyed, or 2 when there is no program.",
    )
    parser.add_argument("--pid", type=int, help="the program to look into, if several run")
    parser.add_argument(
        "--json", action="store_true", help="write one JSON object for each command instead of text (docs/json.md)"
    )
    parser.add_argument("--open", metavar="FILE", help="look into a file that MESHRT_POST_MORTEM=dump has written")
    parser.add_argument(
        "-c", dest="commands", metavar="COMMAND", action="append", help="obey this command and leave (may be repeated)"
    )
    return parser.parse_args(argv)


def _describe(program: Program) -> str:
    command = shlex.join(program.argv)
    if len(command) > 100:
        command = command[:97] + "..."
    return f"pid {program.pid}: {command} (in {program.cwd}, since {since(program.started)})"


class _NoProgramError(UsageError):
    """It is not known which program is meant.

    Attributes:
        choices: Those that run.
    """

    def __init__(self, why: str, choices: Sequence[Program] = ()) -> None:
        super().__init__(why)
        self.choices = choices


def _choose(pid: int | None, *, asks: bool) -> Program:
    """Return the program that is meant. Raises _NoProgramError.

    Args:
        asks: A person at the terminal may be asked.
    """
    found = sorted(programs(), key=lambda program: -program.started)
    if pid is not None:
        for program in found:
            if program.pid == pid:
                return program
        running = "; ".join(map(_describe, found)) or "none runs"
        raise _NoProgramError(f"process {pid} is no meshrt program of this user; {running}", found)
    if not found:
        raise _NoProgramError("no meshrt program of this user is running")
    if len(found) == 1:
        return found[0]
    if not asks:
        raise _NoProgramError("several programs are running; choose one with --pid", found)
    _print_choices(found)
    while True:
        answer = input("which one? ").strip()
        if answer.isdigit():
            for number, program in enumerate(found, 1):
                if int(answer) in (number, program.pid):
                    return program
        print(f"a number from 1 to {len(found)}, or a pid", file=sys.stderr)


def _print_choices(found: Sequence[Program]) -> None:
    for number, program in enumerate(found, 1):
        print(f"{number}  {_describe(program)}", file=sys.stderr)


def _refuse(error: _NoProgramError, arguments: argparse.Namespace) -> None:
    """Say, to a person or a program, that no program can be looked into, and which ones could."""
    if arguments.json:
        choices = [
            {"pid": each.pid, "run_id": each.run_id, "argv": each.argv, "cwd": each.cwd, "started": each.started}
            for each in error.choices
        ]
        Recorder(sys.stdout)({**error_record("", str(error), "UsageError"), "programs": choices})
        return
    if arguments.pid is None:
        _print_choices(error.choices)
    print(error, file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = _arguments(argv)
    if arguments.open is not None and arguments.json:
        print("--json does not go with --open: the file is JSON itself", file=sys.stderr)
        return _EXIT_USAGE
    try:
        if arguments.open is not None:
            return open_dump(arguments.open, arguments.commands)
        program = _choose(arguments.pid, asks=not arguments.json and bool(sys.stdin and sys.stdin.isatty()))
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
    except _NoProgramError as error:
        _refuse(error, arguments)
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
