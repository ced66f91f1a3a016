"""The local engine: agents as children of the root, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from meshrt.host.osutil import RUN_VARIABLE
from meshrt.transport.helper import interpreter

__all__ = ["LocalEngine"]

_PROGRAM = Path(__file__).with_name("agent_main.py")


@dataclass
class _Placed:
    host: str
    process: subprocess.Popen[bytes]
    link_socket: socket.socket
    mark: str


_count = 0


@dataclass(frozen=True)
class LocalEngine:
    """One agent on this machine; with ``agents=N``, N of them, each as one host (``name~0`` ...)."""

    agents: int = 1

    def place(self, run_id: str) -> list[_Placed]:
        """Start the agents; does not wait for them."""
        host = socket.gethostname()
        names = [host] if self.agents == 1 else [f"{host}~{index}" for index in range(self.agents)]
        return [self._start(name, run_id) for name in names]

    @staticmethod
    def _start(host: str, run_id: str) -> _Placed:
        global _count
        _count += 1
        mark = f"{run_id}.{_count}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            process = subprocess.Popen(
                [*interpreter(), str(_PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                # A session of its own: Ctrl-C at the terminal reaches the script alone.
                start_new_session=True,
                env={**os.environ, RUN_VARIABLE: mark},
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Placed(host, process, ours, mark)
