"""The state of every rank, and since when, from what is known already. Asks no rank, waits for none.

If several things are known of a rank, the first of these is its state::

    dead           its process has ended
    not answering  its control thread is silent
    stopped        by the debugger (`meshrt.program.sources.StopSource`), then by an IDE (`HoldSource`)
    blocked, idle  as the ranks have reported (`ActivitySource`)
    running        anything else

What a look then measures, or a question finds out, changes it (`State.measured`, `State.unanswered`,
`State.of_process`). No other code makes a state of what is known.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from meshrt.hooks.facts import Unanswered
from meshrt.hooks.measured import Measured, ProcessFacts
from meshrt.hooks.snapshot import MeshFacts
from meshrt.program.places import NOWHERE, Place, names_file
from meshrt.program.words import BLOCKED, DEAD, IDLE, NOT_ANSWERING, POST_MORTEM, RUNNING, STARTING, STOPPED, silence
from meshrt.selection import Shape

__all__ = ["NOT_STOPPED", "PostMortem", "RankStates", "State", "Stop", "state_of"]

#: Which states a word of the user's means, if there are several.
_MEANT = {STOPPED: (STOPPED, POST_MORTEM), RUNNING: (RUNNING, BLOCKED, IDLE)}
#: The kernel's letters of a process that was stopped: by a signal, by a tracer.
_STOPPED_LETTERS = ("T", "t")


class State(msgspec.Struct, frozen=True):
    """What a rank, or one actor of it, is doing.

    Attributes:
        word: One of `meshrt.program.words`.
        since: Epoch seconds; 0: not known.
        place: Where it is, if that is known, or `NOWHERE`.
        note: Further facts, for the user.
    """

    word: str
    since: float = 0.0
    place: Place = NOWHERE
    note: str = ""

    def is_in(self, word: str) -> bool:
        """Whether ``word`` includes this state: "stopped" includes post-mortem, "running" includes blocked and idle."""
        return self.word in _MEANT.get(word, (word,))

    @property
    def where(self) -> str:
        """The place in words; "": it is not known."""
        return str(self.place) if self.place.line else ""

    @property
    def silent(self) -> bool:
        """Whether the rank will not answer."""
        return self.word in (DEAD, NOT_ANSWERING)

    def measured(self, facts: ProcessFacts | None, host: str, measured: Measured) -> State:
        """Return the state after a look at the process of the rank.

        It is "not answering" if the agent of its host has not answered, or if the kernel says that the process was
        stopped, which it does before any request times out.

        Args:
            facts: The agent's answer about the rank; None: there was none.
            host: The rank's host.
            measured: Which hosts have not answered.
        """
        if self.word == DEAD:
            return self
        if facts is None:
            silent = host in measured.silent
            return replace(self, word=NOT_ANSWERING, note=silence("host")) if silent else self
        if facts.kernel not in _STOPPED_LETTERS or self.silent:
            return self
        return State(NOT_ANSWERING, time.time_ns() / 1e9, self.place, silence("stopped"))

    def unanswered(self, group: Unanswered) -> State:
        """Return the state after the rank has not answered a question: silent, or as it was, with the reason noted."""
        if group.kind == "silent":
            return State(NOT_ANSWERING, note=silence(group.state))
        return replace(self, note=group.why)

    def of_process(self, pid: int) -> State:
        """Return the state, or "starting" if the process (``pid`` is 0) does not exist yet."""
        return State(STARTING) if not pid and self.word in (RUNNING, IDLE) else self


class Stop(msgspec.Struct, frozen=True):
    """What a debugger knows of one actor (or one thread) of a rank.

    Attributes:
        state: How it is stopped; None: it runs.
        place: Where it was stopped last.
        resumed: When it was resumed last (epoch seconds); 0: never.
        endpoint: The endpoint that it was stopped in, and still runs; "": none.
        view: The view through which that was called, if it is known.
        breakpoint: The number of the breakpoint that stopped it; 0: none.
        breakpoint_error: The error of that breakpoint's condition; "": none.
        holder: The pid of the terminal that is attached to it; 0: none.
    """

    state: State | None = None
    place: Place = NOWHERE
    resumed: float = 0.0
    endpoint: str = ""
    view: Shape | None = None
    breakpoint: int = 0
    breakpoint_error: str = ""
    holder: int = 0


NOT_STOPPED = Stop()
"""It was never stopped."""


class PostMortem(msgspec.Struct, frozen=True):
    """An actor of a rank that is stopped after an exception.

    Attributes:
        stack: Stack of the exception, outermost first.
        headline: The exception in one line.
    """

    mesh_id: str
    rank: int
    actor: str
    endpoint: str
    stack: tuple[Place, ...]
    headline: str


def state_of(
    mesh: MeshFacts, rank: int, stop: Stop = NOT_STOPPED, held: State | None = None, activity: State | None = None
) -> State:
    """Return the state of one rank of an actor.

    Args:
        stop: What the debugger knows of it.
        held: How it is stopped in an IDE.
        activity: Its last reported state.
    """
    if rank in mesh.ended:
        ended = mesh.ended[rank]
        return State(DEAD, ended.when, note=str(ended))
    if rank in mesh.silent:
        silent = mesh.silent[rank]
        place = stop.place if stop.place.line else activity.place if activity is not None else NOWHERE
        return State(NOT_ANSWERING, silent.since, place, silence(silent.state))
    if stop.state is not None:
        return stop.state
    if held is not None:
        return held
    if activity is not None and activity.word == BLOCKED:
        return State(BLOCKED, activity.since, activity.place)
    if activity is not None and activity.word == IDLE and not stop.endpoint:
        return State(IDLE, max(activity.since, stop.resumed))
    return State(RUNNING, max(activity.since if activity is not None else 0.0, stop.resumed, mesh.started))


class RankStates:
    """What the states and places of the grammar denote (`meshrt.selection.RankFacts`). Base ranks of one actor."""

    def __init__(self, states: Mapping[int, State], groups: Mapping[str, Collection[int]]) -> None:
        self._states = states
        self._groups = groups

    def in_state(self, word: str) -> Iterable[int]:
        """Return the ranks in a state, one of the words of the grammar."""
        return {rank for rank, state in self._states.items() if state.is_in(word)}

    def groups(self) -> Mapping[str, Collection[int]]:
        """Return the members of process groups, by name."""
        return self._groups

    def at(self, file: str, line: int) -> Iterable[int]:
        """Return the ranks at a line of a file."""
        return {
            rank
            for rank, state in self._states.items()
            if state.place.line == line and names_file(file, state.place.file)
        }
