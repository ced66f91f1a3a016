"""How a rank ended: the facts, as they travel over the control tree, and the error they make for one call."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from meshrt.errors import (
    Disconnected,
    HostLost,
    LinkLost,
    MeshError,
    MeshStopped,
    ProcessDied,
    RankPlace,
    SpawnError,
    describe_exit,
)
from meshrt.hooks.clock import HostClock

__all__ = ["LAUNCHER_SIGNALS", "Fate"]

#: How launchers and pools end processes that they need no more, or of which another one has failed; and Ctrl-C.
LAUNCHER_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Fate:
    """Why a rank (or an actor on it) will not answer any more.

    ``kind`` is ``"died"`` (its process ended), ``"unborn"`` (it could not be started), ``"host"`` (its agent ended),
    ``"stopped"`` (by ``stop()``, or as ``hint`` says), ``"link"`` (the connection broke, the process lives) or
    ``"program"`` (that of another program has ended, as ``hint`` says).
    """

    kind: str
    host: str = ""
    pid: int = 0
    exit_code: int | None = None
    signal: int | None = None
    stack: str = ""
    hint: str = ""
    log_tail: Sequence[str] = ()
    #: When the process ended: surely not before, surely not after; monotonic ns, of its host as long as that has it.
    low: int = 0
    high: int = 0
    #: The machine whose clock that was, and how wrong it may be on the root's, ns (`meshrt.hooks.clock.HostClock`).
    clock: str = ""
    clock_error: int = 0
    #: A process takes its place.
    restarts: bool = False
    #: When the root was told, seconds since the epoch; 0: not yet.
    when: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        """Return how it ended, in words: ``"was killed by SIGKILL"``."""
        match self.kind:
            case "died":
                return describe_exit(self.exit_code, self.signal) + (f" ({self.hint})" if self.hint else "")
            case "unborn":
                return f"could not be started: {self.hint}"
            case "host":
                return "was lost with its host agent" + (f" ({self.hint})" if self.hint else "")
            case "program" | "stopped":
                return self.hint or "was stopped"
        return "closed its connection"

    def on_root_clock(self, clock: HostClock) -> Fate:
        """Return the same with the times on the root's clock."""
        low, high = clock.time(self.low), clock.time(self.high)
        return replace(self, low=low, high=high, clock=clock.host, clock_error=clock.error)

    def error(
        self, place: RankPlace, endpoint: str, *, may_have_run: bool = True, others: Sequence[RankPlace] = ()
    ) -> MeshError:
        """Make the error that a call to this rank raises; ``place`` gets host and pid from here."""
        place = msgspec.structs.replace(place, host=self.host or place.host, pid=self.pid or place.pid)
        common: dict[str, Any] = {"endpoint": endpoint, "may_have_run": may_have_run, "others": others}
        match self.kind:
            case "died":
                return ProcessDied(
                    place,
                    exit_code=self.exit_code,
                    signal=self.signal,
                    stack=self.stack,
                    hint=self.hint,
                    log_tail=self.log_tail,
                    **common,
                )
            case "unborn":
                return SpawnError(f"{place} could not be started: {self.hint}")
            case "host":
                return HostLost(place, hint=self.hint, log_tail=self.log_tail, **common)
            case "program":
                call = f"{place.actor}.{endpoint}()"
                return Disconnected(self.hint, call, may_have_run=may_have_run)
            case "stopped":
                return MeshStopped(place, **common)
        return LinkLost(place, hint=self.hint, **common)
