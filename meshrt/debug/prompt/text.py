"""Terminal side: small texts, safe to show. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshrt.escapes import escaped
from meshrt.selection import fold_ranks

__all__ = ["count_ranks", "prompt_of"]


def count_ranks(ranks: Sequence[int]) -> str:
    """Return ranks, at least one, as text: ``"rank 3"`` or ``"4 ranks: 0-3"``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks: {fold_ranks(ranks)}"


def prompt_of(actor: str, rank: int, coords: Mapping[str, int]) -> str:
    """Return the prompt of an attached rank: ``"(debugee 13 hosts=3,gpus=1) "``."""
    where = ",".join(f"{label}={index}" for label, index in coords.items())
    return escaped(f"({actor} {rank}{' ' + where if where else ''}) ")
