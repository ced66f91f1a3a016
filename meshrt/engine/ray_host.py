"""What runs in Ray's worker on each node: it starts the host agent there, and passes on what that writes.

Ray gets this module by value (`meshrt.engine.ray_cluster`), so that a node without meshrt can say that it has none: it
imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import socket
import subprocess
import sys

__all__ = ["HostAgent"]

#: Has the agent end with Ray's worker, however that ends, and becomes the agent. Started in place of it, because a
#: function that runs between fork and exec may block in a process with threads, such as Ray's worker.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, sys.argv[2], "-"])
"""
_AGENT = "meshrt.engine.agent_main"


class HostAgent:
    """Of a Ray actor: its calls run one after the other, on the main thread of Ray's worker."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes]
        self._ended = -1

    def start(self, invitation: bytes, environment: dict[str, str]) -> tuple[str, str]:
        """Start the agent.

        Args:
            invitation: What it reads from its standard input. A secret.
            environment: What it has in its environment beside that of Ray's worker.
        Returns:
            The name of the host, and why the agent cannot be started there; "": it was started.
        """
        host = socket.gethostname()
        found, why = None, ""
        try:
            found = importlib.util.find_spec(_AGENT)
        except ImportError as error:
            why = f": {error}"
        if found is None or found.origin is None:
            return host, f"{sys.executable} cannot import {_AGENT} there{why}"
        merged = {**os.environ, **environment}
        if merged.get("PYTHONBREAKPOINT", "").startswith("ray."):
            del merged["PYTHONBREAKPOINT"]  # a `breakpoint()` in a rank is one for the debugger of meshrt
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-P", "-c", _BECOME, str(os.getpid()), found.origin],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=merged,
            )
        except OSError as error:
            return host, f"{sys.executable}: {error.strerror}"
        self._ended = os.pidfd_open(self._process.pid)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended: `read` tells why
                self._process.stdin.write(invitation)
                self._process.stdin.close()
        return host, ""

    def read(self) -> bytes | int:
        """Wait for what the agent writes to its standard error, and return it; at its end, its exit status."""
        pipe = self._process.stderr
        if pipe is not None and not pipe.closed:
            # Processes that a rank has detached may keep the pipe open: the end of the agent counts.
            ready, _, _ = select.select([pipe.fileno(), self._ended], [], [])
            data = os.read(pipe.fileno(), 1 << 16) if pipe.fileno() in ready else b""
            if data:
                return data
            pipe.close()
            os.close(self._ended)
        return self._process.wait()
