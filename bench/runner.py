"""One measurement: a fresh process with a time-out, its output kept back, nothing of it left behind."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bench.peers import Contestant
from bench.processes import descendants, kill_descendants
from bench.scenarios import Values

__all__ = ["RunError", "measure"]

ROOT = Path(__file__).resolve().parent.parent
ORPHAN_TIMES = (0.5, 1.0, 2.0)
TAIL_LINES = 12


class RunError(Exception):
    """A measurement that yielded nothing: what went wrong, and the end of what the process printed."""

    def __init__(self, reason: str, output: str) -> None:
        super().__init__(reason, output)
        self.reason = reason
        self.output = output

    def __str__(self) -> str:
        return "\n    | ".join([self.reason, *self.output.splitlines()[-TAIL_LINES:]])


def measure(contestant: Contestant, scenario: str, ranks: int, *, quick: bool, timeout: float) -> Values:
    """Run one scenario with one contestant in a fresh interpreter and return its values.

    The caller must have called :func:`bench.processes.adopt_orphans`.

    Raises:
        RunError: The process failed, or was not done after ``timeout`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        result = Path(folder, "result")
        command = ["-m", "bench.child", contestant.module, scenario, str(ranks), str(int(quick)), str(result)]
        with Path(folder, "output").open("w+") as output:
            begin = time.perf_counter()
            with started([sys.executable, *command], folder, output, contestant.path) as process:
                if scenario == "orphans":
                    return count_orphans(process, result, output, timeout)
                wait_for_exit(process, output, timeout)
                wall = time.perf_counter() - begin
            if not result.exists():
                raise RunError("exit status 0, but no result", text_of(output))
            values: Values = json.loads(result.read_text())
    return {"cold": wall} if scenario == "cold" else values


@contextmanager
def started(command: list[str], folder: str, output: IO[str], first: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in ``folder``, in a session of its own; at the end kill it and all below it.

    ``first``: where Python looks for modules first.
    """
    # Compiling every module anew at each start is not what a user of any peer pays.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**inherited, "PYTHONPATH": search_path(first), "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kill_descendants()


def search_path(first: str) -> str:
    """Return the PYTHONPATH of a run: ``first``, if it is not "", comes before this checkout."""
    return os.pathsep.join(filter(None, [first, str(ROOT), os.environ.get("PYTHONPATH")]))


def wait_for_exit(process: subprocess.Popen[bytes], output: IO[str], timeout: float) -> None:
    """Wait without polling, so that the time of the exit is exact."""
    descriptor = os.pidfd_open(process.pid)
    try:
        exited, _, _ = select.select([descriptor], [], [], timeout)
    finally:
        os.close(descriptor)
    if not exited:
        raise RunError(f"not done after {timeout:g} s", text_of(output))
    if process.wait() != 0:
        raise RunError(f"exit status {process.returncode}", text_of(output))


def count_orphans(process: subprocess.Popen[bytes], result: Path, output: IO[str], timeout: float) -> Values:
    """Wait until the actors have answered, kill their root, and count who still runs, and when."""
    deadline = time.monotonic() + timeout
    while not result.exists():
        if process.poll() is not None:
            raise RunError(f"exit status {process.returncode} before the kill", text_of(output))
        if time.monotonic() > deadline:
            raise RunError(f"not ready after {timeout:g} s", text_of(output))
        time.sleep(0.01)
    killed_at = time.monotonic()
    process.kill()
    process.wait()
    left: Values = {}
    for seconds in ORPHAN_TIMES:
        time.sleep(max(killed_at + seconds - time.monotonic(), 0))
        left[f"orphans_{seconds:g}"] = len(descendants(os.getpid()))
    return left


def text_of(output: IO[str]) -> str:
    """Return what the process and its children have printed."""
    output.seek(0)
    return output.read().strip()
