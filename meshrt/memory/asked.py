"""What a request about the memory of ranks may contain, and its default limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from meshrt.errors import UsageError
from meshrt.memory.operations import LookAtMemory
from meshrt.program.chosen import Chosen, choose
from meshrt.program.targets import Targets

__all__ = ["MILLISECONDS", "OBJECTS", "Asked", "asked_of"]

L = TypeVar("L", float | None, int | None)

#: See `Asked`.
MILLISECONDS, OBJECTS = 200.0, 2_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request.

    Attributes:
        whom: Ranks.
        actor: Variables of this actor only; "": of all actors.
        variables: Return variables.
        opened: The name of a variable: return what is inside it, and nothing else. "": all variables.
        frames: Include the local variables of stack frames that are stopped in the debugger.
        milliseconds: Processor time for the variables of one rank; None: no limit.
        objects: Objects of one variable; None: no limit.
        references: Include references in the store whose name begins so ("": all); None: no references. For names that
            are given, return the variables that hold them too.
        chosen: Whether the request selects some of the ranks.
    """

    whom: Chosen
    actor: str = ""
    variables: bool = False
    opened: str = ""
    frames: bool = False
    milliseconds: float | None = MILLISECONDS
    objects: int | None = OBJECTS
    references: str | None = None
    chosen: bool = False


def asked_of(targets: Targets, look: LookAtMemory) -> Asked:
    """Return the request of a message.

    Raises:
        UsageError: There is no such actor, or a limit is not valid.
        SelectionError: No such ranks.
    """
    return Asked(
        choose(targets, look.actor, look.ranks),
        targets.bare_name(look.actor) if look.actor else "",
        variables=look.variables,
        opened=look.opened,
        frames=look.frames,
        milliseconds=_limit("milliseconds", look.milliseconds),
        objects=_limit("objects", look.objects),
        references=_name(look.references),
        chosen=bool(look.actor or look.ranks),
    )


def _name(value: str | None) -> str | None:
    """Return the beginning of a reference's name, or None."""
    if value is None or all(letter in "0123456789abcdef" for letter in value):
        return value
    raise UsageError(
        f"{value!r} is not the name of a reference; expected hexadecimal digits, as meshrt memory --refs shows them"
    )


def _limit(name: str, value: L) -> L:
    """Check a limit of the request; None: no limit."""
    if value is not None and not 0 <= value < float("inf"):
        raise UsageError(f"{name} is {value:g}; expected a number, 0 or more, or null for no limit")
    return value
