"""Root side: the state of every rank, with since when, from what is known already. Asks nobody, waits for nobody.

Where several things are known of a rank, the first of these is its state::

    dead           its process has ended
    not answering  its control thread is silent: the process was stopped by a signal, or C code holds its GIL
    stopped        it is at a prompt, or at work on a line typed there, or stands in an IDE; post-mortem: after an
                   exception
    blocked        its endpoint has stood at the same instruction, using no CPU, since some time
    running        anything else, waiting for messages included
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meshrt.debug.broker.meshes import MeshFacts
from meshrt.debug.broker.sessions import Session
from meshrt.debug.protocol import RUNNING, STEPPING, Place, names_file
from meshrt.inspect import silence

__all__ = ["Activity", "Facts", "Held", "State", "state_of"]


#: Characters of a line that are told.
_SHORT = 80


@dataclass(frozen=True, slots=True)
class Activity:
    """What the ranks' own samples say of one actor: ``blocked`` or ``running``, since when, and where."""

    state: str
    since: float
    place: Place


@dataclass(frozen=True, slots=True)
class Held:
    """A rank that an IDE has: since when it stands there (epoch seconds; 0: it runs), and where, by actor.

    A thread of the user's own stands for the actor "".
    """

    ide: str = ""
    since: float = 0.0
    places: Mapping[str, Place] = field(default_factory=dict)
    #: That IDE is gone.
    lost: bool = False

    def place_of(self, actor: str) -> Place | None:
        """Return where an actor stands, or where another thread does if no actor does; None: the actor runs."""
        return self.places.get(actor) or (None if any(self.places) else self.places.get("", Place()))


@dataclass(frozen=True, slots=True)
class State:
    """One rank's state: a word of the grammar, since when (epoch seconds), where, and what else is known."""

    word: str
    since: float
    place: Place
    note: str = ""

    def is_in(self, word: str) -> bool:
        """Whether a person means it by ``word``: after an exception it is stopped too, and blocked is running too."""
        return self.word in {"stopped": ("stopped", "post-mortem"), "running": ("running", "blocked")}.get(
            word, (word,)
        )


_FREE = Held()


def state_of(
    mesh: MeshFacts,
    rank: int,
    session: Session | None,
    activity: Activity | None,
    left: float = 0.0,
    held: Held = _FREE,
    actor: str = "",
) -> State:
    """Return the state of one rank of an actor.

    Args:
        left: When it was let go from its last session (epoch seconds), if that has ended.
        held: What an IDE does with it.
        actor: The actor's name, which tells where it stands there.
    """
    if rank in mesh.gone:
        how, when = mesh.gone[rank]
        return State("dead", when, Place(), how)
    if rank in mesh.silent:
        note = silence(mesh.silent[rank])
        since = mesh.silent_since[rank]
        place = session.place if session is not None else activity.place if activity is not None else Place()
        return State("not-answering", since, place, note)
    if session is not None and session.state not in (RUNNING, STEPPING):
        word = "post-mortem" if session.reason == "post-mortem" else "stopped"
        note = "" if session.state == "stopped" else f"at work on {_short(session.line)!r}"
        return State(word, session.since, session.place, note)
    stands = held.place_of(actor) if held.since else None
    if stands is not None:
        return State("stopped", held.since, stands, f"in {held.ide}")
    if activity is not None and activity.state == "blocked":
        return State("blocked", activity.since, activity.place)
    since = max(activity.since if activity else 0.0, session.resumed_at if session else 0.0, left, mesh.started)
    return State("running", since, Place())


def _short(line: str) -> str:
    first, newline, _ = line.partition("\n")
    return first[:_SHORT] + ("..." if newline or len(first) > _SHORT else "")


class Facts:
    """What the grammar's states and places mean here (`meshrt.selection.RankFacts`). Base ranks of one actor."""

    def __init__(self, states: Mapping[int, State]) -> None:
        self._states = states

    def in_state(self, word: str) -> Iterable[int]:
        return {rank for rank, state in self._states.items() if state.is_in(word)}

    def at(self, file: str, line: int) -> Iterable[int]:
        return {
            rank
            for rank, state in self._states.items()
            if state.place.line == line and names_file(file, state.place.file)
        }
