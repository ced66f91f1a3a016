"""What a request about the memory of ranks may contain, and its default limits."""

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


def asked_of(targets: Targets, body: Body) -> Asked:
    """Return the request of a message body.

    Args:
        body: ``{actor, ranks, variables, opened, frames, milliseconds, objects, references}``, all optional.

    Raises:
        UsageError: There is no such actor, or a limit is not valid.
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
    """Return a limit of the request: a number, or None for null (no limit)."""
    value = body.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value < float("inf")):
        raise UsageError(f"{name} is a number, 0 or more, or null for no limit; not {value!r}")
    return value
