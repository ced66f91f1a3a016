"""What the broker asks ranks, and what ranks report to it. Terminals: `meshrt.debug.operations`.

``actor`` is the plain name of an actor, ``thread`` a thread of the user's own beside it ("": the actor's own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from msgspec.structs import replace

from meshrt.collectives.timeouts import CollectiveLimit
from meshrt.debug.operations import Completions
from meshrt.debug.protocol import Mode
from meshrt.hooks.clock import HostClock
from meshrt.hooks.operations import Data, GroupedOperation, Nothing, Operation, Report
from meshrt.inspect.capping import TEXT_LIMIT
from meshrt.inspect.facts import Facts
from meshrt.program.places import NOWHERE, Place

__all__ = [
    "EVALUATION_SECONDS",
    "Accepted",
    "BreakHit",
    "BreakHits",
    "BreakSpec",
    "BreakState",
    "BreakStates",
    "CancelExpression",
    "CancelLine",
    "CompleteAtRank",
    "Ended",
    "Evaluate",
    "Input",
    "InterruptRank",
    "Interrupted",
    "Missed",
    "OfSession",
    "OwnMode",
    "Printed",
    "ReadHits",
    "ReadSource",
    "Resumed",
    "SetBreaks",
    "SetModes",
    "Source",
    "StopOthers",
    "Stopped",
    "Value",
    "WithdrawInterrupt",
]


# -- a session -------------------------------------------------------------------------------------------------------


class Accepted(Data, frozen=True):
    """Whether a line, or the request to cancel one, has come in time."""

    accepted: bool


class Input(Operation[Accepted], frozen=True, tag="debug.input"):
    """The answer to prompt ``seq``.

    Attributes:
        line: None: end of the input.
        resume: Resume the rank in place of a line, whatever reads there.
        brief: Show values in one line each.
        limit: Characters of the answer, at most.
        lines: Lines of a value, at most; None: all.
    """

    actor: str
    thread: str
    seq: int
    line: str | None = None
    resume: bool = False
    brief: bool = False
    limit: int = TEXT_LIMIT
    lines: int | None = None


class CancelLine(Operation[Accepted], frozen=True, tag="debug.cancel_line"):
    """Raise KeyboardInterrupt in the line that has answered prompt ``seq``, if it still runs."""

    actor: str
    thread: str
    seq: int


class CompleteAtRank(Operation[Completions], frozen=True, tag="debug.complete"):
    """Completions of the last word of a line, where the session is stopped or in the actor's namespace."""

    actor: str
    thread: str
    text: str


class OfSession(Report, frozen=True):
    """A report of one session."""

    actor: str
    thread: str


class Stopped(OfSession, frozen=True, tag="debug.stopped"):
    """A session is at a prompt.

    Attributes:
        endpoint: What runs there.
        view: The view through which the call came (`Shape.to_wire`); empty: the whole mesh.
        place: Where it is stopped, regardless of the frame that the user looks at.
        selected: That frame, if it is another one.
        reason: Why: "breakpoint", "step", "interrupt", "post-mortem", "call", "return" or "exception".
        since: Epoch seconds.
        seq: Number of the prompt.
        text: Written since the last report.
        facts: The value that was shown, as plain data; None: there is none.
        error: The error of the last line, in pdb's words; "": none.
        breakpoint: The number of the breakpoint that has stopped it; 0: none of the broker's.
        breakpoint_error: The error of that breakpoint's condition; "": none.
        limits: Time-outs after which ranks that wait for this one give up.
        stack, headline: Of the exception, outermost frame first; where the reason is "post-mortem".
    """

    endpoint: str
    seq: int
    prompt: str
    text: str = ""
    view: Sequence[object] = ()
    place: Place = NOWHERE
    selected: Place = NOWHERE
    reason: str = ""
    since: float = 0.0
    facts: Facts | None = None
    error: str = ""
    breakpoint: int = 0
    breakpoint_error: str = ""
    stack: Sequence[Place] = ()
    headline: str = ""
    limits: Sequence[CollectiveLimit] = ()

    def on_root_clock(self, clock: HostClock) -> Self:
        """See `meshrt.hooks.operations.Data`."""
        return replace(self, since=clock.date(self.since))


class Printed(OfSession, frozen=True, tag="debug.output"):
    """A line that runs for long has written ``text``."""

    text: str


class Resumed(OfSession, frozen=True, tag="debug.resumed"):
    """A session runs. ``text``: written since the last report."""

    how: Literal["continue", "step", "quit"]
    text: str = ""


class Ended(OfSession, frozen=True, tag="debug.ended"):
    """The endpoint of a session has ended."""


class Source(Data, frozen=True):
    """The text of a source file; None: there is none."""

    text: str | None


class ReadSource(Operation[Source], frozen=True, tag="debug.source"):
    """A rank asks for the source of code that exists only in the program."""

    filename: str


# -- an actor that runs ----------------------------------------------------------------------------------------------


class Interrupted(Data, frozen=True):
    """What an interrupt has found; ``text``: where the actor is, in words."""

    state: Literal["asked", "stopped", "idle"]
    text: str


class InterruptRank(GroupedOperation[Interrupted, None], frozen=True, tag="debug.interrupt"):
    """Stop an actor, or a thread, where it is."""

    actor: str
    thread: str = ""


class WithdrawInterrupt(GroupedOperation[Nothing, None], frozen=True, tag="debug.withdraw"):
    """Drop a request to stop an actor that has not been carried out."""

    actor: str


class StopOthers(OfSession, frozen=True, tag="debug.stop_others"):
    """A session is about to stop at a ``breakpoint(all=True)``: the other ranks of its actor are to stop, too."""


class Missed(OfSession, frozen=True, tag="debug.missed"):
    """An interrupt has no effect. ``why``: a refusal; "": what was to be stopped has ended."""

    why: str = ""


class Value(Data, frozen=True):
    """The text of an expression's value, or of its ``error``."""

    text: str
    error: bool


class Evaluate(GroupedOperation[Value, Facts], frozen=True, tag="debug.eval"):
    """Evaluate an expression beside a running actor; what differs by rank are the facts of the value.

    Attributes:
        command: How the value is shown: p, pp, whatis, source.
        label, ranks: The actor and the selection as a person writes them, for hints.
        limit: Characters of the answer, at most.
        number: What `CancelExpression` names.
    """

    actor: str
    command: str
    expression: str
    label: str = ""
    ranks: str = ""
    limit: int = TEXT_LIMIT
    number: int = 0


#: Seconds after which nobody waits for the value of an expression any more.
EVALUATION_SECONDS = 8.0


class CancelExpression(Operation[Accepted], frozen=True, tag="debug.cancel_expression"):
    """Raise KeyboardInterrupt in the expression that is evaluated as ``number``, if it still runs."""

    number: int


# -- breakpoints -----------------------------------------------------------------------------------------------------


class BreakSpec(Data, frozen=True):
    """A breakpoint as a rank gets it: a line of a file, or a method of an actor ("": of any actor).

    ``goes``: the session of the IDE that it belongs to; "": none.
    """

    id: int
    file: str = ""
    line: int = 0
    method: str = ""
    actor: str = ""
    condition: str = ""
    once: bool = False
    goes: str = ""


class BreakState(Data, frozen=True, array_like=True):
    """Where a breakpoint is set.

    Attributes:
        state: "bound", "pending" or the problem.
        line: The actual line, if it is not the one that was requested; or 0.
        near: A loaded file with a similar name, if its own is not loaded; or "".
    """

    id: int
    state: str
    line: int
    near: str


class BreakStates(Data, frozen=True):
    """The states of all breakpoints; ``price``: what looking for them costs, "" if next to nothing."""

    breaks: Sequence[BreakState]
    price: str


class SetBreaks(GroupedOperation[BreakStates, None], frozen=True, tag="debug.breaks"):
    """Replace the breakpoints of a rank."""

    breaks: Sequence[BreakSpec]


class BreakHit(Data, frozen=True, array_like=True):
    """What has become of a breakpoint.

    Attributes:
        line: As in `BreakState`.
        problem: Why it stops nothing, or the error of its condition; "": none.
        left: It stops nothing any more: its IDE has detached from this rank.
        pending: Nothing like its place is loaded.
    """

    id: int
    hits: int
    line: int
    problem: str
    left: bool
    pending: bool


class BreakHits(Data, frozen=True):
    """All breakpoints."""

    breaks: Sequence[BreakHit]


class ReadHits(GroupedOperation[BreakHits, None], frozen=True, tag="debug.hits"):
    """What has become of the breakpoints of a rank."""


class OwnMode(Data, frozen=True):
    """What the program has set for an endpoint that raises."""

    own: Mode


class SetModes(GroupedOperation[OwnMode, None], frozen=True, tag="debug.postmortem"):
    """Replace what a rank does when an endpoint raises, by actor ("": all others)."""

    modes: Mapping[str, Mode]
