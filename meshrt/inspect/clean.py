"""What ranks say, safe to show on a terminal. Pure."""

from __future__ import annotations

import re

__all__ = ["clean", "clean_line", "without_addresses"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ADDRESS = re.compile(r"\b0x(?:[0-9a-f]{6,}|\.\.\.)")


def clean(text: str) -> str:
    """Return ``text`` of a rank with everything that could drive a terminal made visible."""
    return _CONTROLS.sub(lambda match: _visible(match[0]), text.replace("\r\n", "\n"))


def clean_line(text: str) -> str:
    """Return ``text`` of a rank as `clean` does, on one line: a cell of a table."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def without_addresses(text: str) -> str:
    """Return ``text`` without the addresses of objects, which differ from rank to rank and say nothing."""
    return _ADDRESS.sub("0x...", text)


def _visible(character: str) -> str:
    code = ord(character)
    return {"\r": "\\r", "\x1b": "\\e"}.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
