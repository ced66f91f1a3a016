"""Text of user code, limited to the size that can be sent."""

from __future__ import annotations

__all__ = ["TEXT_BYTES", "TEXT_LIMIT", "cap", "left_out"]

#: The most text of one answer that crosses the control plane, in characters.
TEXT_LIMIT = 200_000
#: ... and in bytes, because a message is limited in bytes.
TEXT_BYTES = 600_000


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
