"""``meshrt.breakpoint()``: a breakpoint in code that stops on some ranks, or on a condition."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache

from meshrt.actor.context import current_call
from meshrt.actor.pdbhook import stop_in_pdb
from meshrt.errors import UsageError
from meshrt.selection import Shape
from meshrt.transport.process import current_runtime, has_runtime

__all__ = ["UntilJoined", "breakpoint"]


class UntilJoined:
    """``sys.breakpointhook`` of a process that is to become a rank, until it is one: a breakpoint waits for that.

    Python's own debugger would read standard input there, which belongs to nobody below a launcher.

    Args:
        settled: Set when the process has joined, or never will.
        who: What it is called; "": nothing is said.
        why: Returns why it has not joined so far.
    """

    def __init__(self, settled: threading.Event, who: str, why: Callable[[], str]) -> None:
        self._pid = os.getpid()
        self._settled = settled
        self._who = who
        self._why = why

    def wait(self) -> None:
        """Wait until the hook is another one. A fork has nobody to wait for."""
        off = os.environ.get("PYTHONBREAKPOINT") == "0"
        if not off and os.getpid() == self._pid and not self._settled.is_set():
            if self._who:
                at = f"{self._who} is at a breakpoint and stops there once it has joined"
                print(f"meshrt: {at}; not joined yet: {self._why()}", file=sys.stderr, flush=True)
            self._settled.wait()
        self.end()

    def end(self) -> None:
        """Be the hook no more."""
        if sys.breakpointhook is self:
            sys.breakpointhook = sys.__breakpointhook__

    def __call__(self, *args: object, **kwargs: object) -> object:
        before = sys.breakpointhook  # maybe one of the user's own, which calls this one
        self.wait()
        hook = sys.__breakpointhook__ if sys.breakpointhook is before else sys.breakpointhook
        return hook(*args, **kwargs)


def breakpoint(
    *, when: bool | Callable[[], object] = True, ranks: str = "", header: str = "", all: bool = False
) -> None:
    """Stop here, as Python's ``breakpoint()`` does. Any thread; outside of a rank it is that one.

    Args:
        when: Stop only if this is true; a function is called without arguments.
        ranks: Stop only on these ranks, for instance ``"0:4"`` or ``"hosts=0, gpus=1:"``: a selection in the mesh (the
            slice, the renamed mesh) through which the running call came. Not looked at outside of a rank.
        header: A line to show first.
        all: Stop every other rank of this actor, too, also those that ``ranks`` does not name: each stops at the next
            line that it reaches, or at its own ``breakpoint()`` if it is about to come there. A rank that runs no call
            is not stopped. Not looked at outside of a rank.
    Raises:
        SelectionError: ``ranks`` is not a selection, or names a dimension or a rank that this mesh does not have.
        UsageError: ``ranks`` is given where no call of an endpoint runs.
    Source: docs/grammar.md
    """
    if not (when() if callable(when) else when):
        return
    if isinstance(sys.breakpointhook, UntilJoined):
        sys.breakpointhook.wait()
    in_rank = has_runtime() and not current_runtime().is_root
    if ranks and in_rank:
        call = current_call()
        if call is None:
            raise UsageError("breakpoint(ranks=...) is for the code of a call; in a thread of your own use when=...")
        # Not its shape: a script's device mesh names the dimensions of the call.
        if call.base_rank not in _chosen(ranks, Shape.from_wire(call.call.view)):
            return
    if in_rank or sys.breakpointhook is not sys.__breakpointhook__ or "PYTHONBREAKPOINT" in os.environ:
        more: dict[str, object] = {"header": header} if header else {}
        if all and in_rank and _is_ours(sys.breakpointhook):
            more["all"] = True
        sys.breakpointhook(**more)
        return
    stop_in_pdb(header, sys._getframe(1))  # Python's own hook would stop in this function


def _is_ours(hook: object) -> bool:
    """Whether a hook is that of the rank: one of the user's own does not know ``all``."""
    return str(getattr(hook, "__module__", "")).startswith("meshrt.")


@lru_cache(maxsize=256)
def _chosen(ranks: str, shape: Shape) -> frozenset[int]:
    from meshrt.selection import parse, resolve  # start-up: a parser that most processes do not need

    return frozenset(resolve(parse(ranks), shape, allow_empty=True))
