"""Text of user code, as it is sent: limited in size, and without addresses where ranks are compared. Pure."""

from __future__ import annotations

import re

__all__ = ["TEXT_BYTES", "TEXT_LIMIT", "cap", "left_out", "without_addresses"]

#: The most text of one answer that crosses the control plane, in characters.
TEXT_LIMIT = 200_000
#: ... and in bytes, because a message is limited in bytes.
TEXT_BYTES = 600_000
_ADDRESS = re.compile(r"\b0x(?:[0-9a-f]{6,}|\.\.\.)")


def cap(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return ``text`` as it can be sent: lone surrogates escaped, the middle left out above ``limit`` characters.

    It has at most `TEXT_BYTES` bytes, without the line that says how much was left out.
    """
    gone = max(0, len(text) - 2 * limit)  # escaping only lengthens a text: this part is skipped
    if gone:
        text = text[:limit] + text[len(text) - limit :]
    encoded = text.encode("utf-8", "backslashreplace")
    if not text.isascii():
        text = encoded.decode("utf-8")
    if not gone and len(text) <= limit and len(encoded) <= TEXT_BYTES:
        return text
    half = limit // 2
    head = text[:half].encode()[: TEXT_BYTES // 2].decode("utf-8", "ignore")
    tail = text[len(text) - half :].encode()[-TEXT_BYTES // 2 :].decode("utf-8", "ignore")
    return f"{head}{left_out(gone + len(text) - len(head) - len(tail))}{tail}"


def left_out(characters: int) -> str:
    """Return the line that replaces text that was left out."""
    return f"\n... {characters} characters left out ...\n"


def without_addresses(text: str) -> str:
    """Return ``text`` without the addresses of objects, which differ from rank to rank and carry no information."""
    return _ADDRESS.sub("0x...", text)
