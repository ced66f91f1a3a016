"""What a person may ask of the memory of ranks, and what the answer may take if nobody says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from meshrt.inspect.chosen import Chosen

__all__ = ["MILLISECONDS", "OBJECTS", "Asked"]

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
