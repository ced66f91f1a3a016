"""Loaded by whoever unpickles `tests.fuzz.running.BAIT`, and by nobody else."""

from __future__ import annotations

__all__ = ["FIRE"]

FIRE = True
