"""The engines of these rows: the machines that :mod:`bench.hosts.scenarios` names in the environment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from meshrt import CommandEngine
from meshrt.mesh.engine import Engine, Placed, Program, Request

__all__ = ["AGENTS", "FLOOR", "Watched", "commands"]

AGENTS: dict[str, list[str]] = json.loads(os.environ["BENCH_AGENTS"])
"""The hosts, and the command that runs others there."""
FLOOR: list[str] = json.loads(os.environ["BENCH_FLOOR"])
"""The address of the machine beside which a round trip is measured, and the command that runs others there."""


class Watched:
    """An engine that remembers when it had placed its agents.

    Attributes:
        placed_at: When all of them had joined, by `time.perf_counter`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.placed_at = 0.0

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """As the engine does."""
        placed = self._engine.place(program, request, living)
        self.placed_at = time.perf_counter()
        return placed


def commands() -> CommandEngine:
    """Return the engine that starts an agent on each machine by a command."""
    return CommandEngine(tuple(AGENTS), tuple(map(tuple, AGENTS.values())))
