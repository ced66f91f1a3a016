"""``meshrt run -n 8 train.py``: all ranks of a script on this machine.

This process is the root of a program with one mesh. Each of its ranks runs the script as one call of the actor `Main`,
so all tools see an ordinary actor. The first failure ends the call, and so all ranks, as under torchrun; then they are
started again, if restarts are left.

Ctrl-C and SIGTERM are passed on to the scripts, which have `_GRACE` to end; a second one ends them at once. SIGHUP and
SIGQUIT are SIGTERM for a script, which would be killed by them without a word. Where a script fails,
SIGTERM is sent to the others.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType

from meshrt.engine.launch.script import Script
from meshrt.errors import CallTimeout, MeshError, one_line
from meshrt.mesh.call import MeshCall
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.owner import about
from meshrt.mesh.proc_mesh import ProcMesh, start_mesh
from meshrt.mesh.program import start_root
from meshrt.mesh.sending import send_call
from meshrt.mesh.spec import MeshSpec
from meshrt.mesh.status import die_by
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import Point
from meshrt.show.status import ExitCode
from meshrt.spmd.main import Main
from meshrt.spmd.parts import ACTOR
from meshrt.spmd.world import World
from meshrt.transport.outlink import Loss
from meshrt.wire.frames import Frame
from meshrt.wire.messages import RESULT

__all__ = ["run"]

#: Unless they are ignored, as under nohup. These signals and the time are those of torchrun.
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Seconds for what the script does then: a checkpoint, say.
_GRACE = 30.0
#: Seconds after which it is said that this is waited for; of other signals than Ctrl-C it is said at once.
_TOLD = 1.0


def run(words: list[str], sizes: dict[str, int], max_restarts: int) -> int:
    """Run a script on all ranks of a mesh. Returns the exit status: 1 if a rank has failed."""
    ended_by = [signal.SIGINT]

    def end(number: int, _frame: FrameType | None) -> None:
        ended_by[0] = signal.Signals(number)
        for each in handled:
            signal.signal(each, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
            signal.signal(signal.SIGINT, signal.default_int_handler)
            start_root().runtime.driver.shield.install()
        signal.raise_signal(signal.SIGINT)  # what waits knows how to be ended by that

    def die() -> None:
        if ended_by[0] is not signal.SIGINT:
            die_by(ended_by[0])

    atexit.register(die)  # before that of the program, which dies by Ctrl-C: what is registered last is called first
    handled = [each for each in _ENDS if signal.getsignal(each) is signal.SIG_DFL]
    for each in handled:
        signal.signal(each, end)

    def run_all() -> None:
        try:
            _run(words, sizes, max_restarts, ended_by)
        except KeyboardInterrupt:
            if sys.excepthook is sys.__excepthook__:  # no program has begun, which would say what it waited for
                raise SystemExit(ExitCode.INTERRUPTED) from None
            raise

    return Script(words).guard(run_all)


class _ScriptCall(MeshCall):
    """The end of the script on all ranks: `os._exit(0)` is one, too."""

    __slots__ = ()

    def lose(self, losses: Sequence[Loss]) -> None:
        for loss in losses:
            if loss.fate.exit_code == 0:
                self.deliver(loss.position, Frame(RESULT, [self.call_id, None], b""))
        if failed := [loss for loss in losses if loss.fate.exit_code != 0]:
            super().lose(failed)

    def unended(self) -> list[int]:
        """Return the ranks on which the script has not ended."""
        ended = {position for position, *_ in (*self._failed, *self._lost)}
        return [position for position in self._missing() if position not in ended]

    def _produce(self) -> ValueMesh[None]:
        self._check()
        return ValueMesh(self._target.shape, [None] * len(self._frames))


def _run(words: list[str], sizes: dict[str, int], max_restarts: int, ended_by: Sequence[signal.Signals]) -> None:
    """Run the script on all ranks, again where that is allowed. Raises the error of the first rank that fails."""
    run_id, ends = secrets.token_hex(4), list[str]()
    for attempt in range(max_restarts + 1):
        spec = _spec(sizes, run_id, attempt, max_restarts)
        with start_mesh(spec, Hosts()) as mesh:
            try:
                _run_once(words, mesh, ended_by)
                return
            except MeshError as error:
                first = _headline(error)
                if attempt == max_restarts:
                    for each in ends:
                        error.add_note(each)
                    raise
                ends.append(f"attempt {attempt + 1} of {max_restarts + 1} had failed before: {first}")
                said = f"attempt {attempt + 1} of {max_restarts + 1} has failed; all ranks are restarted"
                print(f"meshrt: {said}: {first}", file=sys.stderr, flush=True)


def _run_once(words: list[str], mesh: ProcMesh, ended_by: Sequence[signal.Signals]) -> None:
    target = mesh.spawn(ACTOR, Main, rank=True).get()._target  # from here on a signal is for the script
    call = _ScriptCall(target.runtime().driver, target, "run")
    try:
        send_call(target, "run", (words,), {}, lambda *_: call).get()
    except (KeyboardInterrupt, MeshError) as error:
        _pass_on(signal.SIGTERM if isinstance(error, MeshError) else ended_by[0], mesh, call, error)
        raise


def _pass_on(number: signal.Signals, mesh: ProcMesh, call: _ScriptCall, error: BaseException) -> None:
    """Have the script end on all ranks, as a signal was to end this process, or as it has failed on some."""
    mesh._tell_failed(error)  # where its ranks are, before they end
    stopped = mesh._begin_stop(_GRACE)
    for pid in filter(None, (about(mesh._mesh_id, rank)[1] for rank in call.unended())):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(pid, signal.SIGINT if number is signal.SIGINT else signal.SIGTERM)
    failed = isinstance(error, MeshError)
    try:
        stopped.get(_TOLD if failed or number is signal.SIGINT else 0.0)
    except CallTimeout:
        why, again = (f"{_headline(error)}: ", "a") if failed else ("", "a second")
        said = f"meshrt: {why}the script has {_GRACE:g} s to end after {number.name}; {again} signal ends it at once"
        print(said, file=sys.stderr, flush=True)
        stopped.get()


def _headline(error: BaseException) -> str:
    return one_line(str(error).partition("\n")[0], 200)


def _spec(sizes: dict[str, int], run_id: str, attempt: int, max_restarts: int) -> MeshSpec:
    world = World(math.prod(sizes.values()), _free_port(), run_id, attempt, max_restarts)

    def variables(point: Point) -> dict[str, str]:
        return world.variables(point.rank, os.environ)

    name = "run" if not attempt else f"run-{attempt + 1}"
    return MeshSpec.make(name, sizes, variables, None, (), script=True)


def _free_port() -> int:
    """Return a port that is free now, for ``MASTER_PORT``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
