"""What the commands of this package share: their end, whatever becomes of their output, and numbers in arguments."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from meshrt.debug.prompt.terminal import OutputError
from meshrt.errors import MeshError, SelectionError
from meshrt.inspect.programs import NoProgram

__all__ = ["run_to_output", "seconds_of"]

_EXIT_USAGE = 2


def run_to_output(name: str, command: Callable[[], int]) -> int:
    """Run a command that writes to standard output. Returns its exit code, or that of what went wrong."""
    try:
        return command()
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OutputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except NoProgram as error:
        print(f"{name}: {error}", file=sys.stderr)
        return _EXIT_USAGE
    except SelectionError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return _EXIT_USAGE
    except (MeshError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
        return 130


def seconds_of(text: str) -> float:
    """Read a number of seconds above 0, for argparse."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400 * 365:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
