"""``python -m meshrt.debug``: open the debugger on a running program of this user, as ``meshrt debug`` does."""

from __future__ import annotations

import sys

from meshrt.commandline.shell import run_words
from meshrt.show.streams import open_standard_streams

__all__ = ["main"]


def main() -> int:
    """Run the command. Returns the exit code."""
    open_standard_streams()
    return run_words(["debug", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
