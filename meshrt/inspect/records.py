"""What a rank answers about its threads and tasks: one record each; and how a user types the names of threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from meshrt.collectives.facts import WorldFacts
from meshrt.hooks.facts import Wait
from meshrt.hooks.operations import Data, GroupedOperation
from meshrt.program.places import Place

__all__ = ["Kind", "ReadStacks", "Record", "StackFrame", "Threads", "Times", "names_thread", "typed_name"]

Kind = Literal["actor", "task", "thread"]
"""An actor (the thread, or the task, that serves it), a further task of its event loop, or a further thread."""


class StackFrame(Place, frozen=True, array_like=True):
    """A frame of a stack; ``hidden``: it is of the runtime or of a library, so it is shown only on request."""

    hidden: bool = False


class Record(Data, frozen=True, omit_defaults=True):
    """One thread or task of a rank, without what differs from rank to rank.

    Attributes:
        name: As Python knows it.
        actor: The actor that it belongs to; "": none.
        endpoint: The endpoint that it runs; "": none.
        state: A word of `meshrt.program.words`, or ``"busy"``: in C code.
        frames: Its stack, outermost first.
        holder: What it waits in, as the source says it; "": not known.
        beside: It runs beside other work of the actor, so what it waits for blocks no other call.
        source: What has told it, if not the rank itself.
    """

    name: str
    kind: Kind
    actor: str
    endpoint: str
    state: str
    frames: Sequence[StackFrame]
    holder: str = ""
    beside: bool = False
    source: str = ""


class Threads(Data, frozen=True):
    """The records of a rank, those of its actors first."""

    threads: Sequence[Record]


class Times(Data, frozen=True, omit_defaults=True):
    """What differs from rank to rank: an item for each record.

    Attributes:
        since: For how many seconds it is known to be at the same place; 0.0 for a running or idle one.
        cpu: Share of one processor, 0.0 to 1.0.
        waits: The calls whose answers it waits for; empty: no record of the rank waits for a call.
        world: The process groups of the rank; None: it has none.
    """

    since: Sequence[float] = ()
    cpu: Sequence[float] = ()
    waits: Sequence[Sequence[Wait]] = ()
    world: WorldFacts | None = None

    def waits_of(self, index: int) -> Sequence[Wait]:
        """Return the calls that the record with this index waits for."""
        return self.waits[index] if self.waits else ()


class ReadStacks(GroupedOperation[Threads, Times], frozen=True, tag="inspect.stacks"):
    """Where the threads and tasks of each rank are.

    Attributes:
        actor: Records of this actor only; "": all.
        verbose: Also the runtime's own frames and threads.
    """

    actor: str = ""
    verbose: bool = False


def typed_name(name: str) -> str:
    """Return the name of a thread as a user can type it: ``loader#0 (load)`` -> ``loader_0``."""
    return re.sub(r"[^\w.-]+", "_", name.split(" ")[0]).strip("_") or "thread"


def names_thread(wanted: str, name: str) -> bool:
    """Whether ``wanted``, as a user types it, is the thread with the Python name ``name``."""
    return wanted in (name, typed_name(name))
