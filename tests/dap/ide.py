"""What VS Code does with one launch configuration, without the window: a session, and one for each announced process.

The order of requests is VS Code's: `initialize`, `attach` (answered late), and at `initialized` the breakpoints of each
file, the exceptions, and `configurationDone`. An adapter announces a further process with the request `startDebugging`,
or, to an IDE that does not know that one, with debugpy's event `debugpyAttach`. Either brings a configuration, and the
IDE opens a connection of its own with it; `startDebugging` is answered when that session is attached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from meshrt.hooks.facts import Body
from tests.dap.client import SECONDS, Address
from tests.dap.session import Session

__all__ = ["Ide"]

T = TypeVar("T")

#: Seconds that a session may take to end when another one of its name is announced.
_ENDING = 3.0


class Ide:
    """An IDE with one launch configuration. Set breakpoints, then enter it: that attaches; leaving it is `kill`.

    Args:
        address: Where the adapter listens. Announced sessions go where their configuration says with ``connect``, or
            there, too.
        configuration: As in ``launch.json``: ``name``, ``type``, ``request``, and whatever the adapter wants to know.
        start_debugging: Whether the IDE knows the request `startDebugging`, as VS Code does.
    """

    def __init__(self, address: Address, configuration: Body, *, start_debugging: bool = True) -> None:
        self.address = address
        self.configuration = {"name": "mesh", "type": "debugpy", "request": "attach", **configuration}
        self.start_debugging = start_debugging
        #: Guards what the sessions know of themselves; told of every change of it.
        self.changed = threading.Condition()
        #: By path: what is set in each session, those included that come later.
        self.breakpoints: dict[str, list[Body]] = {}
        #: Names of the exception filters that are set; None: those that the adapter proposes.
        self.exceptions: list[str] | None = None
        #: What an IDE would show in a red box.
        self.problems: list[str] = []
        self._sessions: list[Session] = []
        self._threads: list[threading.Thread] = []
        self._killed = False

    # ---- coming and going --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.attach()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()

    def attach(self) -> Session:
        """Start the root session; returns it as soon as it is attached. Raises what the adapter answers."""
        session = self._new_session(self.address, self.configuration)
        session.attach()
        return session

    def disconnect(self) -> None:
        """End all sessions as the button does; the processes go on."""
        # The root last: debugpy's own adapter hangs up on the others when it goes.
        self.each([session for session in self.live if session is not self.root], lambda session: session.disconnect())
        self.each([session for session in self.live if session is self.root], lambda session: session.disconnect())

    def kill(self) -> None:
        """End all connections without a word, as an IDE whose machine is gone. May be called again."""
        with self.changed:
            self._killed = True
            sessions = list(self._sessions)
        for session in sessions:
            session.cut()  # all of them first: one may wait for the answer of another
        for session in sessions:
            session.kill()
        for thread in self._threads:
            thread.join(SECONDS)

    # ---- sessions ----------------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[Session]:
        """The sessions that have not ended, the root first."""
        with self.changed:
            return [session for session in self._sessions if not session.over]

    @property
    def sessions(self) -> dict[str, Session]:
        """The attached sessions that have not ended, by name, the root first."""
        with self.changed:
            return {session.name: session for session in self._sessions if session.attached and not session.over}

    @property
    def root(self) -> Session:
        """The session of the launch configuration, also when it has ended."""
        return self._sessions[0]

    def children(self, count: int, seconds: float = SECONDS) -> list[Session]:
        """Wait until ``count`` announced sessions are attached; return them by name."""

        def attached() -> list[Session]:
            return [session for session in self.sessions.values() if session is not self.root]

        self.wait_for(lambda: len(attached()) >= count or self.problems, f"{count} further sessions", seconds)
        if self.problems:
            raise AssertionError(f"further sessions could not be attached: {'; '.join(self.problems)}")
        return sorted(attached(), key=lambda session: session.name)

    def stopped(self, count: int = 1, seconds: float = SECONDS) -> list[Session]:
        """Wait until ``count`` sessions stand; return all that do, by name."""
        self.wait_for(lambda: len(self._standing()) >= count, f"{count} sessions that stand", seconds)
        return sorted(self._standing(), key=lambda session: session.name)

    def _standing(self) -> list[Session]:
        return [session for session in self.sessions.values() if session.stop is not None]

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
        """Return as soon as ``condition()`` holds; fails the test with what each session has heard instead."""
        with self.changed:
            if self.changed.wait_for(condition, seconds):
                return
        raise AssertionError(
            "\n  ".join([f"not within {seconds:g} s: {what}", *self.problems, *map(str, self._sessions)])
        )

    # ---- what a person does ------------------------------------------------------------------------------------------

    def set_breakpoints(
        self, path: object, lines: Sequence[int], *, condition: str = "", **more: Any
    ) -> dict[str, list[Body]]:
        """Replace the breakpoints of a file in all sessions, and in those to come; returns what each answers.

        Args:
            more: Further keys of the protocol's ``SourceBreakpoint``: ``hitCondition``, ``logMessage``.
        """
        facts = {"condition": condition, **more} if condition else more
        with self.changed:
            self.breakpoints[str(path)] = [{"line": line, **facts} for line in lines]
            known = self._configured()
        return self.each(known, lambda session: session.send_breakpoints(str(path)))

    def set_exceptions(self, *filters: str) -> None:
        """Stop at these kinds of exceptions, and no others, in all sessions and in those to come."""
        with self.changed:
            self.exceptions = list(filters)
            known = self._configured()
        self.each(known, lambda session: session.send_exceptions())

    def _configured(self) -> list[Session]:
        return [session for session in self.live if session.configured]

    def continue_all(self) -> None:
        """Let all sessions that stand go on."""
        self.each(self._standing(), lambda session: session.resume())

    def evaluate(self, expression: str) -> dict[str, str]:
        """The value of ``expression`` in the innermost stack frame of each session that stands, by name."""
        return self.each(self._standing(), lambda session: session.evaluate(expression))

    def each(self, sessions: Iterable[Session], do: Callable[[Session], T]) -> dict[str, T]:
        """Do something with several sessions at once; returns the outcomes by name, or raises the first failure."""
        chosen = list(sessions)
        if not chosen:
            return {}
        with ThreadPoolExecutor(len(chosen)) as pool:
            return dict(zip([session.name for session in chosen], pool.map(do, chosen), strict=True))

    # ---- for sessions ------------------------------------------------------------------------------------------------

    def announced(self, configuration: Body) -> str:
        """Start a further session; returns when it is attached, or what has come in between."""
        connect = configuration.get("connect")
        address = (str(connect["host"]), int(connect["port"])) if connect else self.address
        # The one before it may be about to end: its connection is another one.
        with self.changed:
            name = str(configuration.get("name"))
            self.changed.wait_for(lambda: all(each.name != name or each.over for each in self._sessions), _ENDING)
        try:
            self._new_session(address, configuration).attach()
        except Exception as error:  # a person would be shown it, whatever it is
            problem = f"{configuration.get('name')}: {type(error).__name__}: {error}"
            with self.changed:
                self.problems.append(problem)
                self.changed.notify_all()
            return problem
        return ""

    def spawn(self, what: Callable[..., object], *arguments: object) -> None:
        """Do something on a thread of its own: the connection that has told of it goes on meanwhile."""
        thread = threading.Thread(target=what, args=arguments, name="dap-ide", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _new_session(self, address: Address, configuration: Body) -> Session:
        name = str(configuration.get("name") or self.configuration["name"])
        if any(session.name == name for session in self.live):
            raise ValueError(f"there is a session {name!r} already")
        session = Session(self, address, {**configuration, "name": name, "type": self.configuration["type"]})
        with self.changed:
            if self._killed:
                raise ConnectionError(f"{name}: this IDE is killed")
            self._sessions.append(session)
        return session
