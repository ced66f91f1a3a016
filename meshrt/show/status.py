"""How every command ends: its exit code, what it says on standard error, and a closed pipe. On the main thread.

::

    the command returns                        its exit code
    the reader closed the pipe                 OK, without a message
    UsageError, CommandUsageError              USAGE, "meshrt NAME: why" on standard error
    another MeshError, OSError, OutputError    FAILED, the same
    Ctrl-C; Ctrl-D at a question               INTERRUPTED
    SystemExit (argparse)                      its own code; argparse has written the message
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum

from meshrt.errors import MeshError, UsageError
from meshrt.show.streams import OutputError, flush_out

__all__ = ["CommandUsageError", "ExitCode", "complain", "run_command"]


class ExitCode(IntEnum):
    """The exit codes of all commands.

    Attributes:
        OK: The command succeeded. Also if the reader closed the pipe.
        FAILED: The command failed, or in part: a program does not answer, a file cannot be read or written.
        USAGE: Usage error: no such option, program, actor or rank; the error names what there is.
        INTERRUPTED: Interrupted (Ctrl-C).
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class CommandUsageError(Exception):
    """A usage error that only a command can have, and not a script: for example, that no such program runs.

    Attributes:
        facts: Further keys of its record.
    """

    facts: Mapping[str, object] = {}


def run_command(name: str, command: Callable[[], int], report: Callable[[Exception], None] | None = None) -> int:
    """Run a command. Returns its exit code, as the module says.

    Args:
        name: Name of the command: errors are written as ``"name: why"``.
        report: Reports an error in another way, for example as a record on standard output.
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
        complain("")  # the terminal has shown the key on the current line
        return ExitCode.INTERRUPTED


def _flushed(command: Callable[[], int]) -> int:
    """Run a command and flush its output: at the end of the process it is too late to report an error of that."""
    try:
        code = command()
    except SystemExit:  # argparse has printed the help
        flush_out()
        raise
    flush_out()
    return code


def complain(text: str) -> None:
    """Write a line to standard error; an error of that is ignored, as it cannot be reported."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(2)


def _discard(descriptor: int) -> None:
    """Discard what Python still writes to a standard stream at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
