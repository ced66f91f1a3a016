"""Daemons of a cluster: they run on machines beside what is tested, and are no part of what a program leaves behind."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.machines import Machine

__all__ = ["Daemons"]


class Daemons:
    """Programs that are started and ended together; what they print is shown if a test fails while they run."""

    def __init__(self) -> None:
        self._output = tempfile.TemporaryDirectory(prefix="daemons-")
        self._started: list[tuple[Machine, Path, subprocess.Popen[bytes]]] = []

    def start(self, machine: Machine, *words: str, **environment: str) -> None:
        """Start a program that stays in the foreground."""
        path = Path(self._output.name) / f"{machine.name}-{Path(words[0]).name}-{len(self._started)}"
        with path.open("wb") as file:
            started = machine.start(
                *words, env=machine.environment(**environment), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._started.append((machine, path, started))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            for machine, path, started in self._started:
                print(f"---- {path.name} on {machine.name}, exit status {started.poll()}")
                print(path.read_text(errors="replace")[-4000:])
        for machine in {id(machine): machine for machine, _, _ in self._started}.values():
            machine.end_processes()
        for _, _, started in self._started:
            started.wait(20)
        self._output.cleanup()
