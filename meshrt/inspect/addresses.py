"""Addresses of objects in the texts of ranks. Pure."""

from __future__ import annotations

import re

__all__ = ["without_addresses"]

_ADDRESS = re.compile(r"\b0x(?:[0-9a-f]{6,}|\.\.\.)")


def without_addresses(text: str) -> str:
    """Return ``text`` without the addresses of objects, which differ from rank to rank and carry no information."""
    return _ADDRESS.sub("0x...", text)
