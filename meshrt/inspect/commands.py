"""How commands of the shell write and end. Its standard streams, on the main thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import IO

from meshrt.errors import MeshError, UsageError
from meshrt.inspect.programs import NoProgram

__all__ = ["OutputError", "open_standard_streams", "run_command", "write_out"]


class OutputError(Exception):
    """What is shown cannot be written: a full disk, say. A closed pipe is no such thing: whoever read has enough."""


def open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed (``>&-``), where Python has None.

    Otherwise ``print(file=sys.stderr)`` writes to standard output, and a socket may get descriptor 0, 1 or 2.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the command ends


def write_out(stream: IO[str], text: str) -> None:
    """Write and flush ``text``. Raises OutputError, BrokenPipeError."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror}") from error


def run_command(name: str, command: Callable[[], int]) -> int:
    """Run a command. Returns its exit code; 2 if it was asked wrongly, 1 if it could not be done, and says so."""
    code = 1
    try:
        return command()
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OutputError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        problem = str(error)
    except (NoProgram, UsageError) as error:
        code, problem = 2, str(error)
    except (MeshError, OSError) as error:
        problem = str(error)
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)  # the terminal has shown the key on the line that stands there
        return 130
    print(f"{name}: {problem}", file=sys.stderr)
    return code
