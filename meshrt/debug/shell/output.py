"""What the commands of this package share: how they end, whatever becomes of their output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from meshrt.debug.prompt.terminal import OutputError
from meshrt.errors import MeshError, SelectionError
from meshrt.inspect.programs import NoProgram

__all__ = ["run_to_output"]

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
