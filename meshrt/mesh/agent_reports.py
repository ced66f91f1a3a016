"""Reports of host agents about ranks that live: silence, output, events that were left out. On the root's loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from meshrt.errors import user_stack
from meshrt.hooks.snapshot import Silent
from meshrt.hooks.table import hooks
from meshrt.mesh.folding import RankLines
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.mesh.terminal import Terminal
from meshrt.selection import fold_ranks
from meshrt.transport.dropping import DROPPABLE
from meshrt.wire.tree import Output, Pulse

__all__ = ["AgentReports"]

#: Lines, and characters of each, that are kept of a rank of another machine.
_LINES = 20
_LINE_MAX = 1000


class AgentReports:
    """Shows them on the program's terminal, and tells plug-ins.

    Args:
        registry, services, terminal, live: Those of the root.
    """

    def __init__(self, registry: Registry, services: Services, terminal: Terminal, live: LiveLogs) -> None:
        self._registry = registry
        self._services = services
        self._terminal = terminal
        self._live = live

    def pulse(self, pulse: Pulse) -> None:
        """A rank does not answer, or answers again."""
        record = self._registry.meshes.get(pulse.mesh)
        rank, state = pulse.rank, pulse.state
        if record is None or rank in record.fates or record.stopped is not None:
            return
        where = f"{record.name} {record.place(rank)}"
        if state == "answering":
            record.silent.pop(rank, None)
            hooks.run(self._services.rank_silent, record.mesh_id, rank, "")
            self._terminal.announce(f"{where} answers again")
            return
        record.silent[rank] = Silent(state, time.clock_gettime(time.CLOCK_REALTIME))
        hooks.run(self._services.rank_silent, record.mesh_id, rank, state)
        if state == "stopped":
            self._terminal.announce(
                f"{where} does not answer: its process was stopped by a signal (SIGCONT resumes it)"
            )
        else:
            stack = user_stack(pulse.stack)
            self._terminal.announce(f"{where} does not answer: C code holds its GIL" + (f"\n{stack}" if stack else ""))

    def output(self, output: Output, kept: Sequence[str] | None = None) -> None:
        """A rank has printed lines; ``kept``: with those that are not shown. Shows them, as far as that is wanted."""
        record = self._registry.meshes.get(output.mesh)
        if record is None:
            return
        rank = output.rank
        if record.agent_of[rank].machine:
            lines = record.last_lines.setdefault(rank, deque(maxlen=_LINES))
            texts = [line for _, line in output.lines] if kept is None else kept
            lines.extend(line[:_LINE_MAX] for line in texts[-_LINES:])
        if output.lines:
            first = next(iter(record.actors_of(rank, stopped=True)), record.name)
            self.show(record, rank, output.err, [(actor or first, line) for actor, line in output.lines])

    def show(self, record: MeshRecord, rank: int, err: bool, lines: Sequence[tuple[str, str]]) -> None:
        """Show lines of a rank, each with the actor that it is from, as far as that is wanted. Any thread."""
        live = self._live.of(record)
        if rank not in live.ranks:
            return
        coords = ",".join(f"{label}={index}" for label, index in record.shape.coordinates(rank).items())
        fold, shown, at = live.shown.wait(script=record.script), live.shown, time.monotonic()
        prefixed, wait = not record.script or fold > 0, fold if len(live.ranks) > 1 else 0.0
        part = RankLines(record.mesh_id, rank, err, lines, coords, shown, live.scope, at, prefixed, wait)
        self._terminal.lines(part)

    def dropped(self, ranks: Sequence[tuple[str, int, dict[str, int]]]) -> None:
        """Events of ranks were left out while this process, or an agent, did not read."""
        found: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for mesh_id, rank, events in ranks:
            for event, count in events.items():
                found.setdefault((mesh_id, event), []).append((rank, count))
        for (mesh_id, event), counts in found.items():
            record = self._registry.meshes.get(mesh_id)
            name = record.name if record is not None else mesh_id
            who = f"{'rank' if len(counts) == 1 else 'ranks'} {fold_ranks(rank for rank, _ in counts)} of {name}"
            total = sum(count for _, count in counts)
            self._terminal.announce(
                f"{total} {DROPPABLE[event]} on {who} were dropped: the script or a host agent did not read "
                "them in time"
            )
