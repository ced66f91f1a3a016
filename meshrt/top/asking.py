"""The requests of ``top`` to a program: looks at its ranks, and details of one of them. Any thread."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from meshrt.escapes import escaped
from meshrt.inspect.merged import MergedStacks
from meshrt.inspect.operations import ListRanks, Where
from meshrt.inspect.output import tails
from meshrt.inspect.text import render_stacks
from meshrt.memory.api import ask
from meshrt.memory.document import of_mesh
from meshrt.memory.look import Look as Shown
from meshrt.memory.operations import LookAtMemory
from meshrt.memory.table import render
from meshrt.program.words import DEAD, NOT_ANSWERING, POST_MORTEM, STOPPED
from meshrt.top.model import Row
from meshrt.top.operations import Look, Looked
from meshrt.transport.directories import log_path
from meshrt.transport.tools import Program, ToolConnection, connect

__all__ = ["Asking"]

#: Seconds within which a program must answer; it waits less than that for its ranks.
_LOOK_SECONDS = 10.0
_DETAIL_SECONDS = 20.0
#: Lines of a log that are shown.
_LINES = 500


class Asking:
    """A connection to a program.

    Args:
        on_close: Called once, on a thread of the connection, when the program has ended, or after `close`.

    Raises (all of it):
        MeshError: The program rejects the request; the text says why.
        ConnectionError: The program has ended.
        TimeoutError: The program does not answer.
    """

    def __init__(self, program: Program, on_close: Callable[[], None] = lambda: None) -> None:
        self.program = program
        self._connection: ToolConnection = connect(program, on_close=on_close)

    def close(self) -> None:
        """Close the connection; requests that wait for an answer raise ConnectionError."""
        self._connection.close()

    def look(self, ranks: str, actor: str) -> Looked:
        """Return a look at ranks, for `meshrt.top.model.Model.take`. ``ranks``, ``actor``: "" for all."""
        return self._connection.ask(Look(actor, ranks), _LOOK_SECONDS)

    def stacks(self, row: Row) -> str:
        """Return the stacks of a rank as text."""
        found = self._connection.ask(Where(ranks=str(row.rank)), _DETAIL_SECONDS)
        meshes = [mesh for mesh in found.meshes if mesh.mesh_id == row.mesh_id]
        if not meshes:
            return "no actor runs on this rank: there are no stacks to show"
        return escaped(render_stacks(MergedStacks(meshes=meshes)))

    def variables(self, row: Row) -> str:
        """Return the variables of a rank as text, the largest first."""
        document = ask(self._connection, LookAtMemory(ranks=str(row.rank), variables=True, frames=True))
        return render(of_mesh(document, row.mesh_id), Shown(ranks=False))

    def log(self, row: Row) -> str:
        """Return the last lines that a rank has printed."""
        name = "" if row.mesh == row.mesh_id else row.mesh
        if self.program.via:
            logs = f"meshrt logs {self.program.run_id} --ranks {row.rank} --via {shlex.quote(self.program.via)}"
            return f"the output of this rank is in files of its machine; to show it: {logs}"
        path = log_path(self.program.run_directory, name, row.mesh_id, row.rank)
        tail = tails({row.rank: path}, _LINES)[row.rank]
        return escaped(tail.problem or tail.text) or f"no output yet ({path})"

    def how_to_enter(self, row: Row) -> list[str]:
        """Return the commands that give access to a rank, with what they do."""
        debugger = f"meshrt debug {self.program.pid}"
        if row.state == DEAD:
            return [f"meshrt postmortem {self.program.run_id}    shows why, if the program has failed"]
        if row.state == NOT_ANSWERING and "signal" in row.note:
            return [f"kill -CONT {row.pid}    resumes it"]
        state = STOPPED if row.state in (STOPPED, POST_MORTEM) else "all"
        found = self._connection.ask(ListRanks(state, ranks=str(row.rank)), _DETAIL_SECONDS)
        labels = [each.actor for each in found.rows if each.mesh == row.mesh_id]
        if state == STOPPED:
            return [f"{debugger}, and there:  attach {label} {row.rank}" for label in labels]
        return [f"{debugger}, and there:  interrupt {label} ranks({row.rank})    stops it" for label in labels]
