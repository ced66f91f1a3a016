"""What a person may ask of the memory of ranks, and what the answer may take if nobody says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.program.chosen import Chosen, choose
from meshrt.program.targets import Targets

__all__ = ["MILLISECONDS", "OBJECTS", "Asked", "asked_of"]

#: See `Asked`.
MILLISECONDS, OBJECTS = 200.0, 2_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be told.

    Attributes:
        whom: Ranks.
        actor: Variables of this actor only; "": of all.
        variables: Whether variables are told.
        opened: The name of a variable; what is inside of that is told, and nothing else; "": all.
        frames: ... the local variables of stack frames that stand in the debugger among them.
        milliseconds: Of a processor, for the variables of one rank; None: as long as it takes.
        objects: Of one variable; None: all.
        references: Also what is in the store, with a name that begins so ("": all); None: not. Of names that are
            given, also which variables hold it.
        chosen: Whether these ranks were chosen among others.
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


def asked_of(targets: Targets, body: Body) -> Asked:
    """Return what a request asks for; all of it is optional.

    Args:
        body: ``{actor, ranks, variables, opened, frames, milliseconds, objects, references}``.

    Raises:
        UsageError: There is no such actor, or a limit is no limit.
        SelectionError: No such ranks.
    """
    actor, ranks = str(body.get("actor", "")), str(body.get("ranks", ""))
    return Asked(
        choose(targets, actor, ranks),
        targets.bare_name(actor) if actor else "",
        variables=bool(body.get("variables")),
        opened=str(body.get("opened") or ""),
        frames=bool(body.get("frames")),
        milliseconds=_limit(body, "milliseconds", MILLISECONDS),
        objects=_limit(body, "objects", OBJECTS),
        references=_name(body.get("references")),
        chosen=bool(actor or ranks),
    )


def _name(value: Any) -> str | None:
    """Return the beginning of a reference's name, or None."""
    if value is None or (isinstance(value, str) and all(letter in "0123456789abcdef" for letter in value)):
        return value
    raise UsageError(f"references are named by hexadecimal digits, as meshrt memory --refs shows them; not {value!r}")


def _limit(body: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a limit that was given: a number, or null for none."""
    value = body.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value < float("inf")):
        raise UsageError(f"{name} is a number, 0 or more, or null for no limit; not {value!r}")
    return value
