"""Rank side: where actors are stopped in an engine, for commands that ask the program and not the IDE."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from types import FrameType

from meshrt.hooks.facts import ActorState
from meshrt.inspect.visibility import is_debugging_file, is_plumbing

__all__ = ["places"]


def places(actors: Iterable[ActorState]) -> dict[str, tuple[str, int, str]]:
    """Return where actors are stopped in the engine: ``{actor: (file, line, function)}``; "" for another thread."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    idents = {main if actor.thread is None else actor.thread: actor.name for actor in actors}
    found: dict[str, tuple[str, int, str]] = {}
    for ident, frame in frames.items():
        stopped = False
        each: FrameType | None = frame
        while each is not None and is_plumbing(each):
            stopped = stopped or is_debugging_file(each.f_code.co_filename)
            each = each.f_back
        if stopped and each is not None:
            found.setdefault(idents.get(ident, ""), (each.f_code.co_filename, each.f_lineno, each.f_code.co_name))
    return found
