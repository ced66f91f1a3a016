"""The process of one rank that a launcher has started: it runs the script, and takes part in the program of the job.

It is a fork of the one that the launcher has started: it need not load again what that has loaded.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from collections.abc import Sequence

from meshrt.actor.context import enter
from meshrt.actor.joined import MainCall
from meshrt.engine.launch.script import Script
from meshrt.errors import UsageError
from meshrt.host.osutil import has_ended, unbuffer_c_streams
from meshrt.mesh.status import die_by
from meshrt.selection import Shape
from meshrt.spmd.main import Main
from meshrt.spmd.membership import Membership
from meshrt.spmd.parts import Part
from meshrt.transport.launcher import catch_crashes, launcher_file

__all__ = ["run_script"]

#: Seconds for which the script is delayed at most, until its process has joined.
_PATIENCE = 5.0
#: Files that take the place of standard streams that are closed.
_opened: list[object] = []


def run_script(part: Part, words: Sequence[str]) -> int:
    """Be the process; returns its exit status."""
    catch_crashes()
    sys.orig_argv[:] = [sys.orig_argv[0], *words]
    _take_streams()
    try:
        script = Script(words)
    except UsageError as error:
        print(f"meshrt run: {error}", file=sys.stderr)
        return 2
    call = MainCall(part.actor, "run", Main(), Shape.from_extent(part.sizes), part.rank)
    enter(call.context)
    membership = Membership(part.meeting, call, part.stacks, part.watcher, tells=part.job > 0)
    begun = time.monotonic()
    # One line for all: a program that cannot be there ends, and says why. This process may find out before it.
    if not membership.wait(_PATIENCE) and part.job and not has_ended(part.job, begun + _PATIENCE - time.monotonic()):
        why = f"{membership.why}; its script starts now, and it may still join later"
        print(f"meshrt: rank {part.rank} has not joined: {why}", file=sys.stderr, flush=True)

    def execute() -> None:
        with _told():
            try:
                script.execute()
            except KeyboardInterrupt:
                die_by(signal.SIGINT)  # as Python does
                raise
            except Exception as error:
                membership.raised(error)  # first of all: to tell the launcher may take seconds
                raise

    try:
        return script.guard(execute)
    finally:
        membership.ends()


def _take_streams() -> None:
    """Have the standard streams as ``python -u`` has them: what was printed is not lost if this is killed."""
    unbuffer_c_streams()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, f"__{name}__") is None:  # it was closed: no other file may get its number
            _opened.append(getattr(sys, name))
            setattr(sys, name, None)
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        is_pythons = type(old) is io.TextIOWrapper and old is getattr(sys, f"__{name}__")
        if not is_pythons or isinstance(old.buffer, io.RawIOBase):
            continue  # the user has replaced it, or given Python the option
        raw = io.FileIO(old.fileno(), "w", closefd=False)
        raw.name = f"<{name}>"
        new = io.TextIOWrapper(raw, old.encoding, old.errors, "\n", write_through=True)
        new.mode = old.mode  # type: ignore[misc]  # Python sets it in the same way
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _told() -> contextlib.AbstractContextManager[None]:
    """Return a context whose error is told to the launcher."""
    if launcher_file() is None:
        return contextlib.nullcontext()
    from meshrt.failure.telling import recording  # start-up: where a launcher asks for errors

    return recording()
