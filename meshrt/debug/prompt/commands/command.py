"""Terminal side: what a command of the prompt is, what it may use, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from meshrt.debug.prompt.answers import Answers
from meshrt.debug.prompt.client import Client
from meshrt.debug.prompt.commands.words import Words
from meshrt.debug.prompt.terminal import Terminal
from meshrt.hooks.facts import Body

__all__ = ["Arguments", "Command", "Outcome", "Prompt"]

#: The parsed arguments of a line, by name.
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command: text for a person, and the same as plain data for a program."""

    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    #: False: the command failed, wholly or in part.
    ok: bool = True


class Prompt(Protocol):
    """What a command may use. On the prompt's thread."""

    @property
    def client(self) -> Client:
        """The connection to the broker."""
        ...

    @property
    def terminal(self) -> Terminal:
        """Where questions to the person are asked."""
        ...

    def collect(self, first: Body) -> Answers:
        """Gather the answers of a job, for a limited time; ``first`` is the broker's first report."""
        ...

    def attach(self, snapshot: Body) -> None:
        """Attach the prompt to a rank; ``snapshot`` is the broker's answer to attach."""
        ...

    def leave(self) -> None:
        """End the prompt after this command."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the prompt: how a line is parsed, what it runs, and its help."""

    name: str
    usage: str
    summary: str
    parse: Callable[[Words], Arguments]
    run: Callable[[Prompt, Arguments], Outcome]
    aliases: tuple[str, ...] = ()
    details: str = ""
    #: Kinds of arguments, in this order, for completion: actor, ranks, command, state, mode, rank.
    takes: tuple[str, ...] = ()
