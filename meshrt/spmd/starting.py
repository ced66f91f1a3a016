"""How a process that joins starts the program that it joins, unless another one has."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

from meshrt.errors import MeshError
from meshrt.host.meeting import meeting_path
from meshrt.spmd.parts import JOB_PROGRAM, JobSpec, job_environment
from meshrt.transport.helper import interpreter

__all__ = ["Starting"]

#: Seconds for the program of a job to let processes in.
_START = 30.0
_LOOK = 0.02
#: A program that is nobody's child: its starter need not wait for it. A shell gives what it starts in the background no
#: standard input, so the command is brought by another descriptor.
_DETACH = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- >/dev/null &', "sh"]


class Starting:
    """Starts the program. On the thread that joins.

    Args:
        spec: The program.
        command: The interpreter and its options; (): those of this process.
        variables: Of its environment, beside those of this process; those of Python are not handed down then.
        quiet: It writes nothing to the standard error of this process.
    """

    def __init__(
        self,
        spec: JobSpec,
        command: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self._spec = spec
        self._command = [*(command or interpreter()), str(JOB_PROGRAM)]
        self._variables = variables
        self._quiet = quiet

    def __call__(self) -> None:
        """Raises OSError, MeshError: it cannot be started."""
        folder = os.path.dirname(meeting_path(self._spec.meeting))
        base = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(base, fcntl.LOCK_EX)  # one of those that join at once starts it
            if not self._answers():
                self._start()
        finally:
            os.close(base)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                sock.connect(meeting_path(self._spec.meeting))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
        return True

    def _environment(self) -> dict[str, str]:
        if self._variables is None:
            return job_environment()
        kept = {name: value for name, value in job_environment().items() if not name.startswith("PYTHON")}
        return {**kept, **self._variables}

    def _start(self) -> None:
        done = subprocess.run(
            [*_DETACH, *self._command],
            input=self._spec.to_json().encode(),
            stderr=subprocess.DEVNULL if self._quiet else None,
            start_new_session=True,
            env=self._environment(),
            check=False,
        )
        if done.returncode:
            raise MeshError(f"the program of the job cannot be started: /bin/sh has exited with {done.returncode}")
        deadline = time.monotonic() + _START
        while not self._answers():
            if time.monotonic() > deadline:
                raise MeshError(f"the program of the job does not accept processes after {_START:g} s")
            time.sleep(_LOOK)
