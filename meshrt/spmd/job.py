"""The program of a job whose ranks a launcher has started: the root, in a process of its own beside rank 0.

On the other hosts this process becomes their agent, once it has found the root.

::

    python job.py   < JobSpec as JSON on standard input; below a launcher, a fork of the process of rank 0

It makes one mesh whose ranks join (`meshrt.host.meeting`), waits until all of them have ended, and prints the report if
one has failed. It has a session of its own: signals for the job are for its ranks. It never ends a rank.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    # Started by its path, as agents are: it uses the meshrt of the ranks, wherever that came from.
    sys.path[: 0 if sys.flags.safe_path else 1] = [str(Path(__file__).resolve().parents[2])]
    sys.modules["meshrt.spmd.job"] = sys.modules["__main__"]

from meshrt.engine.launch.command import be_host, run_engine
from meshrt.engine.launch.launchers import Launched
from meshrt.engine.launch.rendezvous import Rendezvous, choose
from meshrt.errors import MeshError
from meshrt.hooks.fate import LAUNCHER_SIGNALS, Fate
from meshrt.host.osutil import die_with_parent, outlive_parent, set_name
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.proc_mesh import start_mesh
from meshrt.mesh.program import shutdown_context, start_root
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.spmd.parts import JOB_IGNORES, JobSpec

__all__ = ["ignore_signals", "launched_of", "rendezvous_of", "run_job"]

#: Seconds for the next rank to join when those that have joined have ended, or the process of the first one.
_NEXT = 5.0
_LOOK = 0.2
#: Seconds for the ranks of other hosts, when the launcher has ended those of the first one.
_OTHERS = 0.3
#: Seconds for the other hosts.
_HOSTS = 600.0


def launched_of(spec: JobSpec) -> Launched:
    """Return what `meshrt.engine.launch` is told of this host."""
    return Launched(spec.launcher, spec.host, spec.hosts, spec.meeting)


def rendezvous_of(spec: JobSpec) -> Rendezvous | None:
    """Return how the hosts find each other; None: there is one. Raises UsageError: there is no way.

    The store of torch is used where the launcher serves it: elsewhere its port belongs to the script.
    """
    if spec.hosts == 1:
        return None
    variables = dict(os.environ)
    if variables.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        variables.pop("MASTER_ADDR", None)
    return choose(launched_of(spec), variables)


class _Ranks:
    """Which ranks have joined, and which have ended. On the root's loop but for `wait`.

    Args:
        size: How many there are.
        local_size: How many of them are on the first host: they are the first ones.
        has_parent: Whether the process runs that has started this one.

    Attributes:
        mesh_id: Their mesh; "": it alone has ranks so far.
    """

    def __init__(self, size: int, local_size: int, has_parent: Callable[[], bool]) -> None:
        self._size = size
        self._local_size = local_size
        self._has_parent = has_parent
        self.mesh_id: str = ""
        self._joined: set[int] = set()
        #: Those that have ended, and whether a signal with which launchers end a job was the cause.
        self._ends: dict[int, bool] = {}
        self._changed = threading.Condition()

    def born(self, mesh_id: str, rank: int) -> None:
        """One has joined."""
        if mesh_id == (self.mesh_id or mesh_id):
            with self._changed:
                self._joined.add(rank)
                self._ends.pop(rank, None)
                self._changed.notify_all()

    def gone(self, mesh_id: str, rank: int, fate: Fate) -> None:
        """One has ended, perhaps before it had joined."""
        if mesh_id == (self.mesh_id or mesh_id):
            with self._changed:
                self._joined.add(rank)
                self._ends[rank] = fate.signal in LAUNCHER_SIGNALS
                self._changed.notify_all()

    def _is_over(self) -> bool:
        """Whether all that have joined have ended."""
        return self._joined == self._ends.keys()

    def wait(self) -> None:
        """Wait for the end of all.

        Processes that do not join, as they have ended before, are not waited for long. Nor are the others when the
        launcher has ended all of the first host: it may end its hosts one after the other, and ends itself with the
        last one. The report would be lost then.
        """
        seen = 0
        with self._changed:
            while self._has_more(seen):
                self._changed.wait_for(lambda: self._is_over() or self._is_ended())
                if self._is_ended():
                    self._changed.wait_for(self._is_over, _OTHERS)
                    return
                seen = len(self._joined)

    def _is_ended(self) -> bool:
        """Whether the launcher has ended the ranks of the first host."""
        local = [self._ends.get(rank) for rank in range(self._local_size)]
        return None not in local and any(local)

    def _has_more(self, seen: int) -> bool:
        """Wait for one that joins, beyond those that have; for the first one as long as it may come."""
        if seen == self._size:
            return False
        deadline = time.monotonic() + _NEXT
        while not self._changed.wait_for(lambda: len(self._joined) > seen, _LOOK):
            if seen == 0 and self._has_parent():
                deadline = time.monotonic() + _NEXT
            elif time.monotonic() > deadline:
                return False
        return True


def run(spec: JobSpec) -> None:
    """Be the program. Raises MeshError, OSError: it cannot be started."""
    with run_engine(launched_of(spec), rendezvous_of(spec), spec.hosts, _HOSTS):
        _run(spec)


def _run(spec: JobSpec) -> None:
    root = start_root()
    shape = Shape.from_extent(spec.sizes)
    ranks = _Ranks(len(shape), len(shape) // spec.hosts, _watch(spec.parent))
    root.services.rank_born.append(ranks.born)
    root.services.rank_gone.append(ranks.gone)
    asked = MeshSpec.make(spec.name, spec.sizes, None, None, (), script=True, meeting=spec.meeting)
    mesh = start_mesh(asked, Hosts())
    ranks.mesh_id = mesh.mesh_id
    root.runtime.tree.actor_spawned(mesh.mesh_id, spec.actor, shape)
    ranks.wait()


def _watch(pid: int) -> Callable[[], bool]:
    """Return what says whether a process runs: one that has ended does not, whether or not its parent has reaped it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return lambda: False
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    return lambda: not ended.poll(0)


def main() -> int:
    """Be the process that is started by its path. Returns its exit code."""
    ignore_signals()
    text = sys.stdin.read()
    # An empty text: the process that has started this one was killed before it could write the command.
    return run_job(JobSpec.from_json(text)) if text else 0


def ignore_signals() -> None:
    """Ignore signals that are for ranks, also those that have arrived while they were blocked."""
    for number in JOB_IGNORES:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, JOB_IGNORES)


def run_job(spec: JobSpec) -> int:
    """Be the program, or an agent. Returns the exit code."""
    set_name("meshrt-job")
    sys.argv[:] = spec.words
    sys.orig_argv[:] = [sys.orig_argv[0], *spec.words]
    try:
        if spec.host:
            _be_host(spec)
        else:
            run(spec)
    except (MeshError, OSError) as error:
        print(f"meshrt: this job is not visible to meshrt commands: {error}", file=sys.stderr, flush=True)
        shutdown_context(0.0)
    return 0


def _be_host(spec: JobSpec) -> None:
    """Become the agent of this host, unless the process that has started this one ends before host 0 is there."""
    rendezvous = rendezvous_of(spec)
    if rendezvous is not None:
        die_with_parent(os.getppid())
        be_host(launched_of(spec), rendezvous, _HOSTS, outlive_parent)


if __name__ == "__main__":
    sys.exit(main())
