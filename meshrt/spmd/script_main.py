"""The process of one rank that a launcher has started: it runs the script, and takes part in the program of the job.

::

    python script_main.py WORD ...     the environment has a `Part`, as JSON
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # Started by its path, as agents are. The script's own directory takes this place before the script begins.
    sys.path[: 0 if sys.flags.safe_path else 1] = [str(Path(__file__).resolve().parents[2])]
    sys.modules["meshrt.spmd.script_main"] = sys.modules["__main__"]

from meshrt.actor.context import enter
from meshrt.actor.joined import MainCall
from meshrt.engine.launch.script import Script
from meshrt.errors import UsageError
from meshrt.mesh.status import die_by
from meshrt.selection import Shape
from meshrt.spmd.main import Main
from meshrt.spmd.membership import Membership
from meshrt.spmd.parts import PART, Part
from meshrt.transport.launcher import catch_crashes, launcher_file

__all__: list[str] = []

#: Seconds for which the script is delayed at most, until its process has joined.
_PATIENCE = 5.0


def main() -> int:
    """Be the process; returns its exit status."""
    part = Part.from_json(os.environ.pop(PART))
    catch_crashes()
    for descriptor in (part.stacks, part.watcher):
        os.set_inheritable(descriptor, False)
    try:
        script = Script(sys.argv[1:])
    except UsageError as error:
        print(f"meshrt run: {error}", file=sys.stderr)
        return 2
    call = MainCall(part.actor, "run", Main(), Shape.from_extent(part.sizes), part.rank)
    enter(call.context)
    membership = Membership(part.meeting, call, part.stacks, part.watcher, tells=part.job > 0)
    begun = time.monotonic()
    # One line for all: a program that cannot be there ends, and says why. This process may find out before it.
    if not membership.wait(_PATIENCE) and part.job and not _ends(part.job, begun + _PATIENCE - time.monotonic()):
        why = f"{membership.why}; it begins now, and the tools see it if it can join later"
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


def _ends(pid: int, seconds: float) -> bool:
    """Wait until a process has ended; returns whether it has. A zombie has."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(max(seconds, 0.0) * 1000))
    finally:
        os.close(descriptor)


def _told() -> contextlib.AbstractContextManager[None]:
    """Return a context whose error is told to the launcher."""
    if launcher_file() is None:
        return contextlib.nullcontext()
    from meshrt.failure.telling import recording  # start-up: where a launcher asks for errors

    return recording()


if __name__ == "__main__":
    sys.exit(main())
