"""How every command ends: its exit code, what it says on standard error, and a closed pipe. On the main thread.

::

    the command returns                        its exit code
    the reader closed the pipe                 OK, and nothing is said
    UsageError, CommandUsageError              USAGE, "meshrt NAME: why" on standard error
    another MeshError, OSError, OutputError    FAILED, the same
    Ctrl-C; Ctrl-D at a question               INTERRUPTED
    SystemExit (argparse)                      as it is; argparse has said why
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import IntEnum

from meshrt.errors import MeshError, UsageError
from meshrt.show.streams import OutputError, flush_out

__all__ = ["CommandUsageError", "ExitCode", "complain", "run_command"]


class ExitCode(IntEnum):
    """The exit codes of all commands.

    Attributes:
        OK: It was done. Also if the reader closed the pipe.
        FAILED: It was not done, or not wholly: a program does not answer, a file cannot be read or written.
        USAGE: Usage error: no such option, program, actor or rank; the error names what there is.
        INTERRUPTED: Ctrl-C.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CommandUsageError(Exception):
    """A usage error of a command that a program cannot make: no such program runs, say."""


def run_command(name: str, command: Callable[[], int], report: Callable[[Exception], None] | None = None) -> int:
    """Run a command. Returns its exit code, as the module says.

    Args:
        name: How the command is called: what is wrong is said as ``"name: why"``.
        report: Says what was wrong in another way, as a record on standard output.
    """
    try:
        try:
            return _flushed(command)
        except BrokenPipeError:
            raise
        except (CommandUsageError, MeshError, OSError) as error:
            if report is None:
                complain(f"{name}: {error}")
            else:
                report(error)
            return ExitCode.USAGE if isinstance(error, CommandUsageError | UsageError) else ExitCode.FAILED
    except BrokenPipeError:
        _discard(1)
        return ExitCode.OK
    except OutputError as error:
        _discard(1)
        complain(f"{name}: {error}")
        return ExitCode.FAILED
    except (KeyboardInterrupt, EOFError):
        complain("")  # the terminal has shown the key on the line that stands there
        return ExitCode.INTERRUPTED


def _flushed(command: Callable[[], int]) -> int:
    """Run a command, and write what it has printed: at the end of the process it is too late to say that it cannot."""
    try:
        code = command()
    except SystemExit:  # of argparse, which has printed the help
        flush_out()
        raise
    flush_out()
    return code


def complain(text: str) -> None:
    """Write a line to standard error; if nobody reads that, there is nobody to tell."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(2)


def _discard(descriptor: int) -> None:
    """Let what Python still writes to a standard stream at its end go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
