"""What happens when an endpoint raises: nothing, a stop with the live stack frames, or a file about them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from meshrt.debug.rank.dump import Dumper
from meshrt.debug.rank.session import RankSession, aborted
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.errors import MeshError
from meshrt.hooks import EndpointCall, RankServices

__all__ = ["MODES", "PostMortem"]

#: "default" stops only after a breakpoint of the same endpoint call.
MODES = ("on", "off", "dump", "default")
_ENVIRONMENT = {"1": "on", "0": "off", "on": "on", "off": "off", "dump": "dump"}


class PostMortem:
    """The modes of this rank: one for all actors (the name ""), and exceptions from it."""

    def __init__(self, services: RankServices, sources: SourceFetcher) -> None:
        self._modes: dict[str, str] = {}
        self._default = _ENVIRONMENT.get(os.environ.get("MESHRT_POST_MORTEM", ""), "default")
        self._dumper = Dumper(services, sources)

    def set(self, modes: Mapping[str, str]) -> None:
        """Replace the modes, by actor. Any thread; raises MeshError for an unknown one."""
        unknown = [mode for mode in modes.values() if mode not in MODES]
        if unknown:
            raise MeshError(f"{unknown[0]!r} is no mode for exceptions; expected one of {', '.join(MODES)}")
        self._modes = dict(modes)

    def mode(self, actor: str) -> str:
        """Return the mode of an actor."""
        modes = self._modes
        return modes.get(actor) or modes.get("") or self._default

    def stops(self, call: EndpointCall, exception: BaseException, session: RankSession | None) -> bool:
        """Whether the thread is to be stopped for ``exception``; writes the file about it if that is wanted instead."""
        # What ends an endpoint on purpose is no failure: SystemExit and cancellations are no Exception. (isinstance
        # would ask the exception itself.)
        if not issubclass(type(exception), Exception) or aborted(exception) or exception.__traceback__ is None:
            return False
        mode = self.mode(call.actor)
        if mode == "dump":
            self._dumper.dump(call, exception)
        return mode == "on" or (mode == "default" and session is not None)
