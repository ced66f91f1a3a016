"""Rank side: the local variables of stack frames that are stopped, for the memory view. Any thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from meshrt.debug.rank.pdb_adapter import PdbAdapter
from meshrt.debug.rank.session import RankSession
from meshrt.debug.rank.variables import left_alone
from meshrt.hooks.facts import Variable
from meshrt.inspect.variables import local_variables

__all__ = ["variables_of"]


def variables_of(sessions: Iterable[RankSession]) -> Iterator[Variable]:
    """Iterate over the variables of the frames of every session at a prompt, those of the innermost frame first.

    The frame of a module is left out: its variables are globals, which are listed elsewhere.
    """
    for session in sessions:
        pdb = session.prompt.pdb
        if session.stopped:
            for frame, line in reversed(list(pdb.frames)):
                yield from local_variables(session.call.actor, frame, line, _names(pdb, frame))


def _names(pdb: PdbAdapter, frame: FrameType) -> Mapping[str, Any]:
    if frame is pdb.frame:
        return pdb.names  # as the user sees them; an assignment to the frame's own may be pending
    names = frame.f_locals
    if names is frame.f_globals:
        return {}
    if frame is pdb.frames[-1][0]:
        names = dict(names)
        left_alone(frame)  # its trace function has yet to return, and would write back what was read here
    return names
