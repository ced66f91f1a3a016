"""Escaping of foreign text for a terminal: it can change nothing there, except colours. Pure; the one place for it.

Without it a process can move the cursor over another line, set the window's title, or reverse the direction of writing.
So characters that are not text are shown as escapes: ``\\e[2J``, ``\\x07``, ``\\u202e``. Output of ranks may have
colours (SGR: ``ESC [ numbers m``); a line that does not reset them is given a reset at its end.

It is applied to whole lines: a sequence that a chunk or a newline cuts in two is not a sequence. So the order is: bytes
to lines (`meshrt.host.output`), the last state of a line that is written over (`latest_state`), and this.
"""

from __future__ import annotations

import re

__all__ = ["coloured", "escaped", "escaped_line", "latest_state"]

#: What is not text: C0 without tab and newline, DEL, C1, marks and overrides of the direction of writing, separators
#: of lines and paragraphs, and halves of surrogate pairs, which cannot be sent to a terminal.
_CONTROL = r"\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS = re.compile(rf"[\x1b{_CONTROL}]")
#: The same, but for the escape of a colour.
_OTHERS = re.compile(rf"[{_CONTROL}]|\x1b(?!\[[0-9;:]{{0,64}}m)")
#: The last colour of a line, unless it takes all colours back.
_LEFT_ON = re.compile(r"\x1b\[(?!0?m)[0-9;:]{0,64}m[^\x1b\n]*+(?=\n|\Z)")
_RESET = "\x1b[0m"
#: Bytes of ASCII that are controls: to look for them in a large text costs next to nothing.
_ASCII = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])
#: How progress bars go back to the line that they have written: cursor up, erase in the line.
_BACK = re.compile(r"(?:\x1b\[[0-9]{0,4}[AK])+")


def escaped(text: str) -> str:
    """Return ``text`` with everything that could drive a terminal made visible; newlines and tabs stay."""
    text = text.replace("\r\n", "\n")
    return text if _is_plain(text) else _CONTROLS.sub(_visible, text)


def escaped_line(text: str) -> str:
    """Return ``text`` as `escaped` does, on one line."""
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def coloured(text: str) -> str:
    """Return whole lines with all that could drive a terminal made visible, but colours, which end with the line."""
    if _is_plain(text):
        return text
    return _LEFT_ON.sub(lambda found: found[0] + _RESET, _OTHERS.sub(_visible, text))


def latest_state(line: str) -> str:
    """Return what a terminal shows of a line in the end: the text behind its last carriage return."""
    if "\r" not in line:
        return line
    for state in reversed(line.split("\r")):
        back = _BACK.match(state)
        begin, end = 0 if back is None else back.end(), len(state)
        while (last := state.rfind("\x1b", begin, end)) >= 0 and _BACK.fullmatch(state, last, end):
            end = last
        if begin < end:
            return state[begin:end]
    return ""


def _is_plain(text: str) -> bool:
    if not text.isascii():
        return _CONTROLS.search(text) is None
    data = text.encode("ascii")
    return len(data.translate(None, _ASCII)) == len(data)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return {13: "\\r", 27: "\\e"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
