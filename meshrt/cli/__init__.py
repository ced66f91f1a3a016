"""The ``meshrt`` command: ``meshrt debug ...`` is ``python -m meshrt.debug ...``."""

from __future__ import annotations

import importlib
import shlex
import sys

from meshrt.show.status import ExitCode, complain, run_command
from meshrt.show.streams import open_standard_streams

__all__ = ["main"]

#: Command -> (module with ``main(arguments) -> exit code``, what it does). Loaded by name: only the requested one.
_COMMANDS = {
    "debug": ("meshrt.debug.__main__", "look into a running program"),
    "ps": ("meshrt.debug.shell.ps", "show the running programs, and what their ranks do"),
    "logs": ("meshrt.debug.shell.logs", "show what the ranks of a program print"),
    "timeline": ("meshrt.timeline.command", "record when endpoints run on all ranks, for Perfetto"),
    "memory": ("meshrt.cli.memory", "show how much memory ranks have, and which variables hold it"),
    "dap": ("meshrt.debug.dap.router.command", "let an IDE attach to all ranks of a program, through one port"),
    "top": ("meshrt.top.command", "show the ranks of a program on a screen, again and again"),
    "postmortem": ("meshrt.failure.postmortem", "show why a program failed"),
    "run": ("meshrt.failure.run", "run a script for a launcher, such as torchrun, that is told of its crash too"),
}


#: Where the commands of the debugger's prompt are.
_PROMPT = "meshrt.debug.prompt.commands.table"


def main() -> int:
    """Run the command named by the first argument. Returns the exit code."""
    open_standard_streams()
    return run_command("meshrt", lambda: _run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        print("usage: meshrt COMMAND [ARGUMENT ...]\n\ncommands:")
        for command, (_, text) in _COMMANDS.items():
            print(f"  {command:10} {text}")
        print("\n'meshrt COMMAND --help' tells more.")
        return ExitCode.OK
    if name == "--version":
        from meshrt import __version__  # start-up: rare

        print(f"meshrt {__version__}")
        return ExitCode.OK
    if name not in _COMMANDS:
        complain(f"meshrt: {_explain_missing(arguments)}")
        return ExitCode.USAGE
    code: int = importlib.import_module(_COMMANDS[name][0]).main(arguments[1:])
    return code


def _explain_missing(arguments: list[str]) -> str:
    from meshrt.selection import near_miss  # start-up: rare

    name = arguments[0]
    for command in importlib.import_module(_PROMPT).COMMANDS:
        if name in (command.name, *command.aliases):
            line = shlex.quote(" ".join([command.name, *arguments[1:]]))
            return f"{name!r} is a command of the debugger; expected meshrt debug -c {line}"
    near = near_miss(name, _COMMANDS) or f"; there is {', '.join(_COMMANDS)}"
    return f"no command {name!r}{near} (meshrt --help)"
