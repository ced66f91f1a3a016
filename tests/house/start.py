"""How long ``import meshrt`` takes in a fresh interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys

from tests.support.sources import ROOT

__all__ = ["import_milliseconds"]

_TIMED = "import time; start = time.perf_counter(); import meshrt; print(time.perf_counter() - start)"


def import_milliseconds(rounds: int = 7) -> float:
    """Return the median of some interpreters, in milliseconds; the first one, which may compile, is not counted."""
    command = [sys.executable, "-c", _TIMED]
    runs = [subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True) for _ in range(rounds + 1)]
    return statistics.median(float(run.stdout) for run in runs[1:]) * 1000
