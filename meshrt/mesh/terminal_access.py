"""How terminals find and reach this program: ``tools``, ``tools.token`` and ``program.json`` in its runtime directory.

They are there while the loop runs: the files go before the host agents are told of the end.
"""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING

from meshrt.mesh.loop import RootLoop
from meshrt.mesh.run import Run, working_directory
from meshrt.mesh.services import Services
from meshrt.mesh.upkeep import Upkeep
from meshrt.transport import directories, dirlock
from meshrt.transport.tools import TOKEN, publish
from meshrt.wire.handshake import Secret

if TYPE_CHECKING:
    from meshrt.mesh.toolserver import ToolServer

__all__ = ["TerminalAccess"]

#: Seconds for what was sent to terminals to be written, at the end.
_LAST_WORDS = 0.01


class TerminalAccess:
    """The socket of one program's terminals, and the files that point to it. On the root's loop.

    Args:
        run: Has the directory.
        loop: Serves them.
        services: Answer their requests.
        upkeep: Makes removed files again.
    """

    def __init__(self, run: Run, loop: RootLoop, services: Services, upkeep: Upkeep) -> None:
        self._run = run
        self._loop = loop
        self._services = services
        self._upkeep = upkeep
        self._tools: ToolServer | None = None
        loop.on_start.append(_load)
        loop.on_run.append(self._open)
        loop.on_end.append(self._close)

    async def _open(self) -> None:
        from meshrt.mesh.toolserver import ToolServer  # start-up: see `_load`

        run = self._run
        token = Secret(secrets.token_bytes(32))
        tools = ToolServer(f"{run.directory}/tools", token, self._services.serve_tool, self._services.tool_gone)
        self._tools = tools
        tools.start()
        facts = {"started": run.started, "cwd": working_directory(), "run_directory": str(run.run_directory)}
        publish_program = functools.partial(publish, run.runtime_directory, token, {"run_id": run.run_id, **facts})
        try:
            publish_program()
        except BaseException:
            tools.close()  # the loop will not end, it fails
            raise
        self._upkeep.keep(run.runtime_directory / "tools", tools.listen_again)
        for name in (TOKEN, dirlock.PROGRAM):
            self._upkeep.keep(run.runtime_directory / name, publish_program)

    def _close(self) -> None:
        self._upkeep.end()
        if self._tools is not None:
            self._tools.close()
            if self._tools.clients:
                self._loop.linger(_LAST_WORDS)
        # Before the agents are told that this program cleans up itself: it might be killed right after that.
        directories.remove_tree(self._run.runtime_directory)

    def abandon(self) -> None:
        """Close the sockets in a forked child: a terminal must see the end of the parent."""
        if self._tools is not None:
            self._tools.abandon()


def _load() -> None:
    """Import what takes long, on the thread that begins the loop, while the agent starts in parallel."""
    import meshrt.mesh.toolserver  # noqa: F401 - start-up: as said
