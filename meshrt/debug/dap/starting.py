"""Root side: a router for the program itself, as ``proc_mesh(dap=5678)`` asks for it. A process of its own."""

from __future__ import annotations

import subprocess
import threading

from meshrt.hooks.services import RootServices
from meshrt.transport.helper import SAFE_DIRECTORY, helper_command, helper_environment
from meshrt.transport.process import current_runtime
from meshrt.transport.threads import RuntimeThread

__all__ = ["StartedRouters"]


class StartedRouters:
    """The routers that the script has asked for. They end with the program. Any thread."""

    def __init__(self, services: RootServices) -> None:
        self._services = services
        #: None: about to start.
        self._running: dict[int, subprocess.Popen[str] | None] = {}
        self._starting = threading.Lock()

    def listen(self, port: int) -> None:
        """Begin to listen at a port of the loopback interface, unless that is done already; says where, or why not."""
        with self._starting:  # two threads of the script may make meshes at once
            known = self._running.get(port)
            if port in self._running and (known is None or known.poll() is None):
                return
            self._running[port] = None
        environment = helper_environment(current_runtime().directory)
        starting = RuntimeThread(target=self._start, args=(port, environment), name="meshrt-dap", daemon=True)
        # What is posted runs after the program was published: the router finds it as a terminal does.
        self._services.call_soon(starting.start)

    def _start(self, port: int, environment: dict[str, str]) -> None:
        try:
            # In a session of its own: Ctrl-C at the terminal is the script's, which may go on after it.
            process = self._running[port] = subprocess.Popen(
                helper_command("dap", self._services.run_id, "--port", str(port)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=SAFE_DIRECTORY,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            del self._running[port]
            self._services.announce(f"no IDE can attach at port {port}: {error}")
            return
        self._tell(process, port)

    def _tell(self, process: subprocess.Popen[str], port: int) -> None:
        """Say where it listens, and read what else it says: it must not wait for that."""
        if process.stdout is None:
            return
        with process:
            first = process.stdout.readline().strip()
            if first:
                where = first.rpartition(" ")[2]
                number = where.rpartition(":")[2]
                how = f"meshrt dap --no-serve --port {number} shows the entry for launch.json"
                self._services.announce(f"an IDE can attach at {where}; {how}")
            # Both at once: the process blocks if its warnings are not read.
            _, problem = process.communicate()
            if process.returncode and problem.strip():
                self._services.announce(f"no IDE can attach at port {port}: {problem.strip().splitlines()[-1]}")
