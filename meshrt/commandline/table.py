"""The commands by their words. Those of meshrt are the modules of the folder ``meshrt/commands``.

A module has the name of its command (``break_`` where that is a word of Python), and holds it as ``COMMAND``. It is
loaded when its word is typed; another name of a command, help and completion load all.
"""

from __future__ import annotations

import functools
import importlib
import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from meshrt import selection  # its grammar is loaded when it is used
from meshrt.commandline.command import AnyCommand, Arguments, Command, Offer, Outcome
from meshrt.commandline.line import Line
from meshrt.commandline.parser import arguments_of
from meshrt.errors import UsageError

__all__ = ["COMMANDS", "AnyTable", "Invocation", "Table"]

_FOLDER = "meshrt.commands"

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Invocation(Generic[C]):
    """A parsed line: the command and its arguments, None if its help is asked for."""

    command: Command[C]
    arguments: Arguments | None
    offer: Offer

    def run(self, context: C) -> Outcome:
        """Run the command, or return its help. Raises MeshError; OSError if the program does not answer."""
        if self.arguments is None:
            from meshrt.commandline.texts import help_of  # start-up: seldom

            text = help_of(self.command, self.offer)
            return Outcome(text, {"text": text})
        if self.command.run is None:
            raise UsageError(f"{self.command.name!r} is a command of the shell: meshrt {self.command.name}")
        return self.command.run(context, self.arguments)


class Table(Generic[C]):
    """Some commands.

    Args:
        commands: All of them, in any order.
    """

    def __init__(self, commands: Sequence[Command[C]]) -> None:
        self._commands = commands

    def all(self) -> Sequence[Command[C]]:
        """Return all commands."""
        return self._commands

    def get(self, word: str) -> Command[C] | None:
        """Return the command with a name or alias; None: there is none."""
        return next((each for each in self.all() if word in (each.name, *each.aliases)), None)

    def offered(self, offer: Offer) -> list[Command[C]]:
        """Return the commands that can be used somewhere."""
        return [each for each in self.all() if each.offer & offer]

    def find(self, word: str, offer: Offer) -> Command[C]:
        """Return the command with a name or alias. Raises UsageError, which names the nearest one."""
        command = self.get(word)
        if command is not None and command.offer & offer:
            return command
        if command is not None and Offer.SHELL in command.offer:
            raise UsageError(f"{word!r} is a command of the shell: meshrt {command.name}")
        names = [each.name for each in self.offered(offer)]
        near = selection.near_miss(word, names) or f"; expected one of {', '.join(names)}"
        raise UsageError(f"no command {word!r}{near}")

    def parse(self, text: str, offer: Offer) -> Invocation[C]:
        """Return the command and the arguments in a line, which is not blank.

        Raises:
            UsageError: No such command, or invalid arguments.
            SelectionError: Invalid ranks (``.span`` points into ``text``).
        """
        line = Line.typed(text)
        word = line.take()
        if word == "meshrt" and self.get(line.peek()) is not None:
            raise UsageError(f"at this prompt commands are typed without meshrt: {line.left}")
        command = self.find(word, offer)
        if command.meant(line.left.split()) is not command:
            why = "the actor is missing" if line.peek().isdecimal() else "this form is not available at a prompt"
            raise UsageError(f"{why}; in a shell it accepts processes that are not ranks: meshrt {line.text.strip()}")
        return Invocation(command, arguments_of(command, line, offer), offer)

    def parse_words(self, words: Sequence[str], offer: Offer) -> Invocation[C]:
        """Return the command and the arguments in the words of a shell, of which there is one at least. Raises as
        `parse`.
        """
        line = Line.given(words)
        command = self.find(line.take(), offer).meant(words[1:])
        return Invocation(command, arguments_of(command, line, offer), offer)

    def help(self, topic: str, offer: Offer) -> str:
        """Return the help of one command, or of all (""). Raises UsageError: no such command."""
        from meshrt.commandline.texts import help_of, overview  # start-up: seldom

        if topic:
            return help_of(self.find(topic, offer), offer)
        return "\n".join([*overview(self.offered(offer)), "`help COMMAND` shows the usage of a command"])


#: A table, whatever its commands may use when they run.
AnyTable = Table[Any]


class _Folder(AnyTable):
    """The commands of the folder."""

    def __init__(self) -> None:
        super().__init__(())

    def all(self) -> Sequence[AnyCommand]:
        return [command for name in _modules() if (command := _load(name)) is not None]

    def get(self, word: str) -> AnyCommand | None:
        module = f"{word}_" if keyword.iskeyword(word) else word
        command = _load(module) if module in _modules() else None
        return command if command is not None and command.name == word else super().get(word)


@functools.cache
def _modules() -> tuple[str, ...]:
    folder = Path(__file__).parent.parent / "commands"
    return tuple(sorted(path.stem for path in folder.glob("[a-z]*.py")))


def _load(name: str) -> AnyCommand | None:
    command = getattr(importlib.import_module(f"{_FOLDER}.{name}"), "COMMAND", None)
    return command if isinstance(command, Command) else None


#: All commands of meshrt.
COMMANDS: AnyTable = _Folder()
