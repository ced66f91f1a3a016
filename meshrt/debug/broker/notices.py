"""Root side: notices about stops and deaths of ranks, gathered into waves, one line per actor.

A wave ends when nothing has happened for `QUIET_SECONDS` or a little more, or after `LONGEST_TICKS` times as long. Its
lines go to the program's own terminal, to every terminal of the debugger, and to every program that listens. While
ranks are stopped and no person is at a terminal of the debugger, the lines say how to open one, and a reminder is
printed at growing intervals (`FIRST_REMINDER_SECONDS` to `LONGEST_REMINDER_SECONDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from meshrt.debug.broker.sessions import Session, SessionTable
from meshrt.debug.operations import Notice
from meshrt.debug.protocol import STOPPED
from meshrt.hooks.services import RootServices, ToolClient
from meshrt.inspect.capping import cap
from meshrt.program.groups import by_key
from meshrt.program.targets import Actor, Targets
from meshrt.selection import fold_ranks
from meshrt.show.text import since

__all__ = ["HOW_TO", "Notices", "summarize"]

HOW_TO = "python -m meshrt.debug"
QUIET_SECONDS = 0.1
LONGEST_TICKS = 16
FIRST_REMINDER_SECONDS = 30.0
LONGEST_REMINDER_SECONDS = 600.0
#: Characters of an error's text in one line, at most.
_WORDS_MAX = 200


class Notices:
    """Gathers stops and deaths into waves.

    Args:
        audience: Returns the recipients: the debugger's terminals that a person uses, and programs that listen.
        persons: Returns the former alone: only a person can do something for stopped ranks.
        on_wave: Called after each wave in which ranks stopped.
        own_pid: Pid of this process, whose terminal gets the lines from the runtime.
    """

    def __init__(
        self,
        services: RootServices,
        table: SessionTable,
        targets: Targets,
        audience: Callable[[], Sequence[ToolClient]],
        persons: Callable[[], Sequence[ToolClient]],
        on_wave: Callable[[], None],
        own_pid: int,
    ) -> None:
        self._services = services
        self._table = table
        self._targets = targets
        self._audience = audience
        self._persons = persons
        self._on_wave = on_wave
        self._own_pid = own_pid
        #: Stops of the present wave: announced at its end.
        self.coming: dict[Session, None] = {}
        self._happened: dict[tuple[str, str, str], list[int]] = {}
        #: Names of the ranks of each mesh, by mesh id, for this wave.
        self._names: dict[str, dict[int, str]] = {}
        self._quiet = True  # nothing has happened since the last tick
        self._ticks = 0  # of the present wave
        self._reminder = FIRST_REMINDER_SECONDS
        self._reminding = False

    def stopped(self, session: Session) -> None:
        """Take in a stop that no terminal has shown yet; it is announced with the wave."""
        self.coming[session] = None
        self._event()

    def happened(self, mesh_id: str, rank: int, one: str, many: str = "", *, actor: str = "") -> None:
        """Take in an event of a rank, or of an actor of it. Events of a mesh that is being stopped are dropped.

        Args:
            one, many: The text for one rank (``"has ended"``), and for several ("": the same).
            actor: The actor's label; "": the rank as a whole.
        """
        names = self._names.get(mesh_id)
        if names is None:
            names = self._names[mesh_id] = self._targets.names_of_ranks(mesh_id)
        name = names.get(rank, "") and (actor or names[rank])
        if name:
            self._happened.setdefault((name, one, many or one), []).append(rank)
            self._event()

    def said(self, text: str) -> None:
        """Pass on a text that the runtime has printed on the program's own terminal."""
        for client in self._audience():
            if client.pid != self._own_pid:
                _push(client, text)

    def typed(self, client: ToolClient, text: str) -> None:
        """Show a line that was typed at the terminal ``client`` to the others."""
        for other in self._audience():
            if other.id != client.id:
                _push(other, text)

    def _event(self) -> None:
        self._quiet = False
        if not self._ticks:
            self._ticks = 1
            self._services.call_later(QUIET_SECONDS, self._tick)

    def _tick(self) -> None:
        if not self._quiet and self._ticks < LONGEST_TICKS:
            self._quiet = True
            self._ticks += 1
            self._services.call_later(QUIET_SECONDS, self._tick)
            return
        self._ticks = 0
        stops = [session for session in self.coming if session.state == STOPPED]
        happened = [
            f"{_ranks_of(name, ranks)} {one if len(ranks) == 1 else many}"
            for (name, one, many), ranks in self._happened.items()
        ]
        self.coming.clear()
        self._happened.clear()
        self._names.clear()
        try:
            # The program's own terminal, if no debugger is open there, gets these from the runtime or the call's error.
            self._tell(happened)
            self._publish(summarize(stops, self._targets.actors()))
        finally:  # the ranks are stopped, also if announcing that failed
            if stops:
                self._remind_later()
                self._on_wave()

    def _tell(self, lines: Sequence[str]) -> None:
        for client in self._audience():
            for line in lines:
                _push(client, line)

    def _publish(self, lines: Sequence[str]) -> None:
        self._tell(lines)
        persons = self._persons()
        if not any(client.pid == self._own_pid for client in persons):
            for line in lines:
                self._services.announce(line if persons else f"{line}; {HOW_TO}")

    def _remind_later(self) -> None:
        self._reminder = FIRST_REMINDER_SECONDS
        if not self._reminding:
            self._reminding = True
            self._services.call_later(self._reminder, self._remind)

    def _remind(self) -> None:
        stopped = [session for session in self._table if session.state == STOPPED]
        self._reminding = bool(stopped)
        if not stopped:
            return
        if not self._persons():
            longest = since(min(session.at.since for session in stopped))
            for line in summarize(stopped, self._targets.actors()):
                self._services.announce(f"reminder: {line}, for {longest}; {HOW_TO}")
        self._reminder = min(2 * self._reminder, LONGEST_REMINDER_SECONDS)
        self._services.call_later(self._reminder, self._remind)


def _push(client: ToolClient, text: str) -> None:
    client.report(Notice(cap(text)))  # a text too long for a message would be lost as a whole


def summarize(sessions: Iterable[Session], actors: Sequence[Actor]) -> list[str]:
    """Return one line per actor: ``"16 ranks of debugee stopped at my_actors.py:16 (to_debug)"``.

    Ranks that are stopped at an exception have a line of their own.
    """
    named = {(actor.mesh.mesh_id, actor.name, actor.thread): actor for actor in actors}
    groups: dict[tuple[str, str, int], list[Session]] = {}
    for session in sessions:
        actor = named.get((session.key.mesh_id, session.key.actor, session.key.thread))
        label = actor.label if actor is not None else session.name
        size = len(actor.views) if actor is not None else 0
        verb = "failed" if session.at.reason == "post-mortem" else "stopped"
        groups.setdefault((label, verb, size), []).append(session)
    return [_line(label, verb, members, size) for (label, verb, size), members in sorted(groups.items(), key=_label)]


def _label(group: tuple[tuple[str, str, int], list[Session]]) -> tuple[str, str]:
    return group[0][:2]


def _line(label: str, verb: str, sessions: list[Session], size: int) -> str:
    by_place: dict[str, list[Session]] = {}
    for session in sessions:
        number = f" by breakpoint {session.at.breakpoint}" if session.at.breakpoint else ""
        by_place.setdefault(f"at {session.at.place}{number}", []).append(session)
    (first, members), *others = sorted(by_place.items(), key=lambda item: -len(item[1]))
    text = f"{_ranks_of(label, _numbers(members), size)} {verb} {first}{_condition(members)}"
    for place, members in others:
        ranks = _numbers(members)
        text += f", {'rank' if len(ranks) == 1 else len(ranks)} {_braced(ranks)} {place}{_condition(members)}"
    headlines = {session.at.headline for session in sessions} if verb == "failed" else {""}
    return text + (f": {headlines.pop()[:_WORDS_MAX]}" if len(headlines) == 1 and headlines != {""} else "")


def _numbers(sessions: Iterable[Session]) -> list[int]:
    return [session.key.rank for session in sessions]


def _condition(sessions: Sequence[Session]) -> str:
    """Return the error of a breakpoint's condition: if ranks differ, the most frequent one and its ranks; or ""."""
    failing = (session for session in sessions if session.at.breakpoint and session.at.error)
    by_error = by_key((session.at.error, session.key.rank) for session in failing)
    if not by_error:
        return ""
    error, ranks = max(by_error.items(), key=lambda item: len(item[1]))
    text = error if len(error) <= _WORDS_MAX else f"{error[:_WORDS_MAX]}..."
    if len(ranks) < len(sessions):
        text = f"{'rank' if len(ranks) == 1 else len(ranks)} {_braced(ranks)}: {text}"
    others = sum(map(len, by_error.values())) - len(ranks)
    more = f"; {others} other{'s differ' if others > 1 else ' differs'}" if others else ""
    return f" ({text}{more})"


def _ranks_of(label: str, ranks: Sequence[int], size: int = 0) -> str:
    """Return ``"rank 3 of debugee"``, ``"2 ranks of debugee (3,5)"``, or without the list if these are all."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} of {label}"
    return f"{len(ranks)} ranks of {label}" + ("" if len(ranks) == size else f" {_braced(ranks)}")


def _braced(ranks: Sequence[int]) -> str:
    folded = fold_ranks(ranks)
    return folded if len(ranks) == 1 else f"({folded if len(folded) <= 100 else '...'})"
