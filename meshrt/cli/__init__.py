"""The ``meshrt`` command. What can follow it is in `meshrt.commands`."""

from __future__ import annotations

import sys

from meshrt.commandline.command import Arguments
from meshrt.commandline.shell import help_in_shell, run_words
from meshrt.show.forks import ChildProcess
from meshrt.show.status import ExitCode, run_command
from meshrt.show.streams import open_standard_streams, write_out

__all__ = ["main", "show_help"]


def main() -> int:
    """Run the command named by the first argument. Returns the exit code."""
    try:
        return _run()
    except ChildProcess as child:
        run = child.run  # after this block: in it, the frames of the command would be kept by their traceback
    return run()


def _run() -> int:
    open_standard_streams()
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        words = ["help", *words[1:]]
    if words[0] == "--version":
        from meshrt import __version__  # start-up: rare

        return run_command("meshrt", lambda: _show(f"meshrt {__version__}"))
    if words[0].startswith("--local_rank=") and words[1:2] == ["run"]:
        words[:2] = ["run", words[0]]  # deepspeed puts it behind the name of the module
    return run_words(words)


def show_help(given: Arguments) -> int:
    """Run ``meshrt help``. Returns the exit code."""
    return _show(help_in_shell(given["topic"]))


def _show(text: str) -> int:
    write_out(sys.stdout, text + "\n")
    return ExitCode.OK
