"""The words of a shell, run: ``meshrt COMMAND ...``. On the main thread."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

from meshrt.commandline.command import AnyCommand, Offer, Values
from meshrt.commandline.table import COMMANDS, Invocation
from meshrt.errors import UsageError
from meshrt.show.paging import write_paged
from meshrt.show.records import Recorder, error_facts
from meshrt.show.status import CommandUsageError, ExitCode, run_command

__all__ = ["help_in_shell", "run_words"]

#: What runs a command of the prompt, ``function(invocation, run, line, json=...)``. Loaded only for one.
PROMPT = "meshrt.debug.prompt.entry:run_in_shell"
#: What runs a command for another machine, ``function(via, words, reads_files, here)``. Loaded only for one.
VIA = "meshrt.cli.via:run"


def help_in_shell(topic: str) -> str:
    """Return the help of one command of the shell, or of all (""). Raises UsageError: no such command."""
    from meshrt.commandline.texts import help_of, overview  # start-up: seldom

    if topic:
        command = COMMANDS.find(topic, Offer.SHELL)
        return help_of(command, Offer.SHELL)
    from meshrt.show.installing import documentation  # start-up: seldom

    lines = overview(COMMANDS.offered(Offer.SHELL), headings=True)
    found = documentation()
    pages = [f"docs/ and examples/ are in {found}"] if found else []
    return "\n".join(
        ["usage: meshrt COMMAND [ARGUMENT ...]", *lines, "", "'meshrt COMMAND --help' shows more.", *pages]
    )


def run_words(words: Sequence[str]) -> int:
    """Run a command, of which ``words`` has the name and the arguments. Returns its exit code.

    With ``--json`` an error is a record on standard output, whatever the command is.
    """
    command = COMMANDS.get(words[0])
    command = command and command.meant(words[1:])
    if command is None or Offer.SHELL not in command.offer:
        return run_command("meshrt", lambda: _run(words))
    report = _reporter(command, words) if _wants_records(command, words) else None
    return run_command(f"meshrt {command.name}", lambda: _run(words), report)


def _wants_records(command: AnyCommand, words: Sequence[str]) -> bool:
    has = any(each.words == "--json" for each in command.options_for(Offer.SHELL))
    return has and ("--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words))


def _reporter(command: AnyCommand, words: Sequence[str]) -> Callable[[Exception], None]:
    """Return what writes the record of an error."""

    def report(error: Exception) -> None:
        # Of `debug`, records are of the commands that it is given: this is before the first one.
        name, line = ("", "") if command.name == "debug" else (command.name, " ".join(words))
        kind, further = type(error).__name__, {}
        if isinstance(error, CommandUsageError):
            kind, further = UsageError.__name__, dict(error.facts)
        Recorder(sys.stdout, command.schema)({**error_facts(name, line, kind, str(error)), **further})

    return report


def _run(words: Sequence[str]) -> int:
    _refuse_option(words)
    command = COMMANDS.find(words[0], Offer.SHELL).meant(words[1:])
    invocation = COMMANDS.parse_words([words[0], *_forward(command, words[1:])], Offer.SHELL)
    if invocation.arguments is None:
        write_paged(sys.stdout, help_in_shell(command.name) + "\n")
        return ExitCode.OK
    given = dict(invocation.arguments)
    via = given.pop("via", "")
    if via:
        if given.get("open") is not None:
            raise UsageError("--open FILE is read on this machine: it cannot be combined with --via")
        if given.get("stdio") and (given.get("write_launch_json") or given.get("no_serve")):
            raise UsageError("an entry for --stdio cannot have --via: leave out --stdio, and the entry names a port")
        there = _without(words, "--via")
        return _load(VIA)(via, there, command.reads_files, lambda: _run_here(command, given, words))
    return _run_here(command, given, words)


def _run_here(command: AnyCommand, given: Values, words: Sequence[str]) -> int:
    """Run a command, whose arguments are ``given``, with the programs that are found here."""
    program = given.pop("program", "")
    if command.main:
        if program and given["run"]:
            raise UsageError(f"one program at a time: expected RUN or --program RUN, not both ({given['run']})")
        return _load(command.main)({**given, "run": given["run"] or program} if "run" in given else given)
    json = given.pop("json")
    return _load(PROMPT)(Invocation(command, given, Offer.SHELL), program, " ".join(words), json=json)


def _without(words: Sequence[str], option: str) -> list[str]:
    """Return words without an option that is there once, and its value."""
    at = next(index for index, word in enumerate(words) if word.partition("=")[0] == option)
    return [*words[:at], *words[at + (1 if "=" in words[at] else 2) :]]


def _refuse_option(words: Sequence[str]) -> None:
    """Raise UsageError for an option in front of the command."""
    if not words[0].startswith("-"):
        return
    at = next((index for index, word in enumerate(words) if COMMANDS.get(word) is not None), None)
    line = ["COMMAND", *words] if at is None else [*words[at:], *words[:at]]
    raise UsageError(f"{words[0]!r} is not a command; options follow the command: meshrt {' '.join(line)}")


def _forward(command: AnyCommand, words: Sequence[str]) -> list[str]:
    """Return the words of a shell, with those options at their end in front that every command of a shell has.

    The last argument of a command may be a text, such as an expression: they would be part of it.
    """
    further = command.further_options(Offer.SHELL)
    flags = {word for each in further if not each.metavar for word in each.words.split(", ")}
    valued = {word for each in further if each.metavar for word in each.words.split(", ")}
    left, moved = list(words), list[str]()
    while left:
        count = 1 if left[-1] in flags or left[-1].partition("=")[0] in valued - {left[-1]} else 2
        if count == 2 and (len(left) < 2 or left[-2] not in valued):
            break
        moved = [*left[-count:], *moved]
        del left[-count:]
    return [*moved, *left]


def _load(name: str) -> Callable[..., int]:
    module, _, function = name.partition(":")
    found: Callable[..., int] = getattr(importlib.import_module(module), function)
    return found
