"""The words of a shell, run: ``meshrt COMMAND ...``. On the main thread."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from meshrt.commandline.command import AnyCommand, Kind, Offer, Option
from meshrt.commandline.table import COMMANDS, Invocation
from meshrt.errors import UsageError
from meshrt.show.status import ExitCode, run_command
from meshrt.show.streams import write_out

__all__ = ["help_in_shell", "options_of", "run_words"]

#: What runs a command of the prompt, ``function(invocation, run, line, json=...)``. Loaded only for one.
PROMPT = "meshrt.debug.prompt.entry:run_in_shell"

_PROGRAM = Option(
    "-p, --program", "the program: its id, its pid or its run directory", metavar="RUN", default="", offer=Offer.SHELL
)
_JSON = Option("--json", "one object instead of text (docs/json.md)", offer=Offer.SHELL)


def options_of(command: AnyCommand) -> tuple[Option, ...]:
    """Return the options that a command has in a shell beside its own."""
    has_run = any(each.kind is Kind.RUN for each in command.arguments)
    if command.main:
        return (_PROGRAM,) if has_run else ()
    return (_PROGRAM, _JSON)


def help_in_shell(topic: str) -> str:
    """Return the help of one command of the shell, or of all (""). Raises UsageError: no such command."""
    from meshrt.commandline.texts import help_of, overview  # start-up: seldom

    if topic:
        command = COMMANDS.find(topic, Offer.SHELL)
        return help_of(command, Offer.SHELL, options_of(command))
    lines = overview(COMMANDS.offered(Offer.SHELL), headings=True)
    return "\n".join(["usage: meshrt COMMAND [ARGUMENT ...]", *lines, "", "'meshrt COMMAND --help' tells more."])


def run_words(words: Sequence[str]) -> int:
    """Run a command, of which ``words`` has the name and the arguments. Returns its exit code."""
    command = COMMANDS.get(words[0])
    name = f"meshrt {command.name}" if command is not None and Offer.SHELL in command.offer else "meshrt"
    return run_command(name, lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    command = COMMANDS.find(words[0], Offer.SHELL)
    extra = options_of(command)
    invocation = COMMANDS.parse_words(words, Offer.SHELL, extra)
    if invocation.arguments is None:
        write_out(sys.stdout, help_in_shell(command.name) + "\n")
        return ExitCode.OK
    given = dict(invocation.arguments)
    program = given.pop("program", "")
    if command.main:
        if program and given["run"]:
            raise UsageError(f"one program at a time: expected RUN or --program RUN, not both ({given['run']})")
        return _load(command.main)({**given, "run": given["run"] or program} if "run" in given else given)
    json = given.pop("json")
    return _load(PROMPT)(Invocation(command, given, Offer.SHELL), program, " ".join(words), json=json)


def _load(name: str) -> Callable[..., int]:
    module, _, function = name.partition(":")
    found: Callable[..., int] = getattr(importlib.import_module(module), function)
    return found
