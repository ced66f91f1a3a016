"""Terminal side: small texts, safe to show. Pure text in, pure text out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from meshrt.selection import fold_ranks

__all__ = ["clean", "count_ranks", "prompt_of", "without_addresses"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_ADDRESS = re.compile(r"\b0x(?:[0-9a-f]{6,}|\.\.\.)")


def without_addresses(text: str) -> str:
    """Return ``text`` without the addresses of objects, which differ from rank to rank and say nothing."""
    return _ADDRESS.sub("0x...", text)


def clean(text: str) -> str:
    """Return ``text`` of a rank with everything that could drive a terminal made visible."""
    return _CONTROLS.sub(lambda match: _visible(match[0]), text.replace("\r\n", "\n"))


def _visible(character: str) -> str:
    code = ord(character)
    return {"\r": "\\r", "\x1b": "\\e"}.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def count_ranks(ranks: Sequence[int]) -> str:
    """Return ``"rank 3"`` or ``"4 ranks: 0-3"``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks: {fold_ranks(ranks)}"


def prompt_of(actor: str, rank: int, coords: Mapping[str, int]) -> str:
    """Return the prompt of an attached rank: ``"(debugee 13 hosts=3,gpus=1) "``."""
    where = ",".join(f"{label}={index}" for label, index in coords.items())
    return clean(f"({actor} {rank}{' ' + where if where else ''}) ")
