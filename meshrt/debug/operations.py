"""What terminals ask the broker, and what it tells them. Ranks: `meshrt.debug.rank_operations`.

A request to many ranks (cast, print, interrupt, ...) is a *job*: its answer is the first `JobReport`, and later reports
with the same number are pushed to the terminal until one of them says ``done``. The result of a rank (`Kind`):

* ``answered``: the text is what the rank wrote; if it was at a prompt, it is at one again.
* ``resumed``: the rank has reported that it runs. ``asked``: it was told to run, and sends no report.
  ``ended``: its endpoint ended. ``aborted``: the line was ``q``.
* ``gone``: its process ended, the text says how. ``silent``: it has not answered in time, the text says why.
* ``refused``: not possible on that rank, the text says why. ``idle``: it runs no endpoint. ``blocked``: it is in C
  code, the text says where.
* Not asked: ``held`` (another terminal is attached), ``busy`` (has not answered an earlier line), ``running`` (was
  resumed and has not stopped again), ``missing`` (is not stopped), ``stopped`` (an interrupt: is stopped already).

In all of them ``actor`` is a name as a person writes it (``trainer``, ``trainer@left``, ``trainer/T-1``; "": all
actors, or the only one), ``ranks`` a selection ("": all ranks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Literal, TypeVar

from meshrt.hooks.operations import Data, Nothing, Operation, Report
from meshrt.inspect.facts import Facts
from meshrt.inspect.operations import RankRow
from meshrt.program.places import Place

__all__ = [
    "Asked",
    "Attach",
    "AttachedReport",
    "Break",
    "BreakRow",
    "BreakSet",
    "BreakShown",
    "Breaks",
    "BreaksShown",
    "Cancel",
    "Cast",
    "Clear",
    "Cleared",
    "Complete",
    "Completions",
    "Continue",
    "Count",
    "Detach",
    "Greeting",
    "Hello",
    "Interrupt",
    "JobAnswer",
    "JobReport",
    "Kind",
    "Leave",
    "Left",
    "Logs",
    "Modes",
    "Notice",
    "PostMortemModes",
    "Print",
    "RankSets",
    "Send",
    "Sent",
    "Snapshot",
    "Wait",
    "WaitResult",
]

A_co = TypeVar("A_co", covariant=True)

#: Base ranks, ascending, by mesh id.
RankSets = Mapping[str, Sequence[int]]
Kind = Literal[
    "answered", "resumed", "asked", "ended", "aborted", "gone", "silent", "refused", "idle", "blocked",
    "held", "busy", "running", "missing", "stopped", "elsewhere", "empty",
]  # fmt: skip


class Asked(Operation[A_co], Generic[A_co], frozen=True, kw_only=True):
    """What a terminal asks; ``typed``: the line that was typed for it, "": none."""

    #: It runs code in ranks, or stops them: refused where the debugger is switched off.
    runs_code: ClassVar[bool] = False
    #: It changes something for ranks: the other terminals show what was typed.
    acts: ClassVar[bool] = False

    typed: str = ""


# -- terminals -------------------------------------------------------------------------------------------------------


class Greeting(Data, frozen=True):
    """What a new terminal is told.

    Attributes:
        pid, argv: Of the program's root process.
        stops: One line for each actor with stopped ranks.
        stopped, resumed: As in `Count`.
    """

    pid: int
    argv: Sequence[str]
    stops: Sequence[str]
    stopped: int
    resumed: int


class Hello(Asked[Greeting], frozen=True, tag="debug.hello"):
    """A terminal has connected: of a person, of a program that ``listens`` to notices, or of a script (neither)."""

    person: bool = False
    listens: bool = False


class Notice(Report, frozen=True, tag="debug.notice"):
    """A line for the person at the terminal: a stop, an end, what was typed elsewhere."""

    text: str


class Count(Report, frozen=True, tag="debug.count"):
    """How many ranks are stopped, and how many were resumed and may stop again."""

    stopped: int
    resumed: int


# -- one rank --------------------------------------------------------------------------------------------------------


class Snapshot(RankRow, frozen=True, kw_only=True):
    """A rank to which a terminal attaches: its row, and what its prompt needs.

    Attributes:
        session: State of the session (`meshrt.debug.protocol`).
        reason: Why it is stopped: "breakpoint", "step", "interrupt", "post-mortem", ...
        text: What it has written since the last line.
        headline: After an exception: the exception in one line.
        code: The text of the line where it is stopped.
        selected: The frame that a person looks at there, if it is another one; and the text of its line.
        sent: The last line that was sent.
        limits: What ends the wait of other ranks for this one, in lines.
    """

    session: str
    reason: str
    text: str
    headline: str
    code: str
    selected: tuple[Place, str] | None
    prompt: str
    sent: str
    limits: Sequence[str] = ()


class Attach(Asked[Snapshot], frozen=True, tag="debug.attach"):
    """Attach to one rank; ``steal``: also if another terminal is attached."""

    runs_code: ClassVar[bool] = True
    acts: ClassVar[bool] = True

    actor: str
    rank: str
    steal: bool = False


class AttachedReport(Report, frozen=True, tag="debug.attached"):
    """An event of the attached session.

    Attributes:
        kind: ``stopped`` (at a prompt: ``prompt``, ``reason``, ``seq``, ``failed``), ``printed``, ``resumed``
            (``how``: continue, step, quit), ``ended`` (its endpoint), ``gone`` (its process; the text says how),
            ``stolen`` (another terminal is attached now; the text says which).
        endpoint: What runs there.
        text: Written since the last event.
        failed: The last line failed.
    """

    kind: Literal["stopped", "printed", "resumed", "ended", "gone", "stolen"]
    endpoint: str
    text: str
    prompt: str = ""
    reason: str = ""
    seq: int = 0
    failed: bool = False
    how: str = ""


class Detach(Asked[Nothing], frozen=True, tag="debug.detach"):
    """Detach; the rank stays as it is."""


class Sent(Data, frozen=True):
    """The number of the prompt that a line answers: a later prompt answers the line."""

    seq: int


class Send(Asked[Sent], frozen=True, tag="debug.send"):
    """Answer the prompt of the attached rank with a line; None: end of the input. ``lines``: of a value; None: all."""

    runs_code: ClassVar[bool] = True
    acts: ClassVar[bool] = True

    line: str | None
    lines: int | None = None


class Cancel(Asked[Nothing], frozen=True, tag="debug.cancel"):
    """Raise KeyboardInterrupt in the line that runs at the prompt of the attached rank."""


class Completions(Data, frozen=True):
    """Completions of the last word of a line; ``known``: the line is the name of a variable there."""

    names: Sequence[str]
    known: bool = False


class Complete(Asked[Completions], frozen=True, tag="debug.complete"):
    """Complete a line for the attached rank."""

    runs_code: ClassVar[bool] = True

    text: str


# -- many ranks ------------------------------------------------------------------------------------------------------


class JobAnswer(Data, frozen=True):
    """The equal results of some ranks of an actor.

    Attributes:
        facts: The value that was shown, as plain data (docs/json.md); None: there is none.
        failed: The line failed, and the text says why.
    """

    actor: str
    kind: Kind
    text: str
    ranks: Sequence[int]
    failed: bool = False
    facts: Facts | None = None


class JobReport(Report, frozen=True, tag="debug.report"):
    """Results of a job since the last report; ``waiting``: the ranks that have not answered, by actor."""

    answers: Sequence[JobAnswer]
    waiting: Mapping[str, Sequence[int]]
    done: bool
    job: int = 0


class Cast(Asked[JobReport], frozen=True, tag="debug.cast"):
    """Send a line to the prompts of stopped ranks."""

    runs_code: ClassVar[bool] = True
    acts: ClassVar[bool] = True

    actor: str
    ranks: str
    line: str


class Continue(Asked[JobReport], frozen=True, tag="debug.continue"):
    """Resume stopped ranks."""

    acts: ClassVar[bool] = True

    actor: str = ""
    ranks: str = ""


class Print(Asked[JobReport], frozen=True, tag="debug.print"):
    """Evaluate an expression on ranks: in the frame where a rank is stopped, else in the actor's namespace."""

    runs_code: ClassVar[bool] = True

    actor: str
    command: str
    expression: str
    ranks: str = ""


class Interrupt(Asked[JobReport], frozen=True, tag="debug.interrupt"):
    """Stop running ranks where they are."""

    runs_code: ClassVar[bool] = True
    acts: ClassVar[bool] = True

    actor: str
    ranks: str = ""


class Logs(Asked[JobReport], frozen=True, tag="debug.logs"):
    """The last lines that ranks have printed."""

    actor: str
    ranks: str = ""
    lines: int | None = None


class Left(Data, frozen=True):
    """How many ranks were told to cancel what they run."""

    cancelled: int


class Leave(Asked[Left], frozen=True, tag="debug.leave"):
    """Wait for the results of a job no longer; ``cancel``: its lines and expressions that still run are cancelled."""

    job: int
    cancel: bool = False


class WaitResult(Data, frozen=True):
    """Base ranks, ascending; ``missing``: those that were not stopped at the end of the wait."""

    stopped: Sequence[int]
    missing: Sequence[int]


class Wait(Asked[WaitResult], frozen=True, tag="debug.wait"):
    """Wait until all these ranks are stopped, for so many seconds; the actor may be spawned later."""

    actor: str
    ranks: str = ""
    seconds: float = 0.0


# -- breakpoints -----------------------------------------------------------------------------------------------------


class BreakRow(Data, frozen=True):
    """A breakpoint.

    Attributes:
        selection: The ranks as a person wrote them, or "all".
        ranks: None: all ranks, those of later meshes too.
        goes_with: Pid of the IDE's process whose session deletes it at its end; 0: it stays until a person deletes it.
    """

    id: int
    place: str
    condition: str
    once: bool
    selection: str
    ranks: RankSets | None
    goes_with: int


class BreakSet(BreakRow, frozen=True):
    """A breakpoint that was set.

    Attributes:
        states: "bound", "pending", or why it is not set: with the ranks where that is so.
        price: What it costs; "": next to nothing.
        lines: Other lines where it was set, with their ranks.
        near: Loaded files with similar names.
        meshes: Names of all meshes, by mesh id.
    """

    states: Mapping[str, RankSets]
    price: str
    lines: Mapping[str, RankSets]
    near: Sequence[str]
    meshes: Mapping[str, str]


class Break(Asked[BreakSet], frozen=True, tag="debug.break"):
    """Set a breakpoint.

    Attributes:
        place: ``FILE:LINE`` or ``ACTOR.METHOD``.
        goes: The number of an IDE session, whose console this terminal is: when the terminal closes, the breakpoint is
            deleted; 0: it stays.
    """

    runs_code: ClassVar[bool] = True
    acts: ClassVar[bool] = True

    place: str
    condition: str = ""
    once: bool = False
    actor: str = ""
    ranks: str = ""
    goes: int = 0


class Cleared(Data, frozen=True):
    """The breakpoints that were deleted."""

    breaks: Sequence[BreakRow]


class Clear(Asked[Cleared], frozen=True, tag="debug.clear"):
    """Delete breakpoints; none: all of them."""

    acts: ClassVar[bool] = True

    ids: Sequence[int] = ()


class BreakShown(BreakRow, frozen=True):
    """A breakpoint, and what ranks report of it, with the ranks that report so.

    Attributes:
        hits: How often it was hit.
        lines: Other lines where it was set.
        problems: Why it stops nothing.
        left: The ranks that the IDE whose session it belongs to has left.
        pending: Those on which nothing like its place is loaded, if that is so on all.
    """

    hits: Mapping[str, RankSets]
    lines: Mapping[str, RankSets]
    problems: Mapping[str, RankSets]
    left: RankSets
    pending: RankSets


class BreaksShown(Data, frozen=True):
    """All breakpoints; ``problems``: ranks that have not answered, and why; ``meshes``: names by mesh id."""

    breaks: Sequence[BreakShown]
    problems: Mapping[str, RankSets]
    meshes: Mapping[str, str]


class Breaks(Asked[BreaksShown], frozen=True, tag="debug.breaks"):
    """All breakpoints."""


class Modes(Data, frozen=True):
    """What ranks do when an endpoint raises.

    Attributes:
        modes: As set here, by actor ("": all others).
        own: As the program has set them, with their ranks.
        problems: Ranks that have not answered, and why.
        meshes: Names by mesh id.
    """

    modes: Mapping[str, str]
    own: Mapping[str, RankSets]
    problems: Mapping[str, RankSets]
    meshes: Mapping[str, str]


class PostMortemModes(Asked[Modes], frozen=True, tag="debug.postmortem"):
    """Set what ranks do when an endpoint raises (`meshrt.debug.protocol.MODES`); "": only show it."""

    runs_code: ClassVar[bool] = True
    acts: ClassVar[bool] = True

    mode: str = ""
    actor: str = ""
