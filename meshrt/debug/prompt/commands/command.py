"""Terminal side: what a command of the prompt is, and what it has to do with."""

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

#: What a line said, by the names that the command gives them.
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command came to: text for a person, and the same as plain data for a program."""

    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    #: False: it could not be obeyed, wholly or in part.
    ok: bool = True


class Prompt(Protocol):
    """What a command may use."""

    @property
    def client(self) -> Client: ...

    @property
    def terminal(self) -> Terminal: ...

    def collect(self, first: Body) -> Answers:
        """Gather what becomes of a job, within limits."""
        ...

    def attach(self, snapshot: Body) -> None:
        """Give the prompt to a rank."""
        ...

    def leave(self) -> None:
        """End the prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """One word of the prompt."""

    name: str
    usage: str
    summary: str
    parse: Callable[[Words], Arguments]
    run: Callable[[Prompt, Arguments], Outcome]
    aliases: tuple[str, ...] = ()
    details: str = ""
    #: What may stand behind it, in this order, for completion: actor, ranks, command, state, mode, rank.
    takes: tuple[str, ...] = ()
