"""Colours of a command's text at a terminal: what a person looks for first stands out.

=========  =======================================================================
colour     what
=========  =======================================================================
cyan       the ranks of an answer, ``[0-3]``; the place where a rank is stopped
bold       the line of source there; headings
blue       in lines of source: keywords; green: strings; grey: comments
yellow     blocked, not answering
magenta    stopped in the debugger
red        errors of a line; killed by a signal; likely culprits; the root cause
=========  =======================================================================

Nothing is coloured where the output is no terminal, on a terminal without colours (``TERM=dumb``), and where the user
has set ``NO_COLOR`` (https://no-color.org).
"""

from __future__ import annotations

import keyword
import os
import re
from typing import IO

from meshrt.show.streams import is_terminal

__all__ = ["painted", "painted_for", "prompt_painted", "wants_colours"]

_RESET = "\x1b[0m"
_BOLD, _RED, _YELLOW, _MAGENTA, _CYAN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[35m", "\x1b[36m"
_GREY, _GREEN, _BLUE, _DEFAULT = "\x1b[90m", "\x1b[32m", "\x1b[34m", "\x1b[39m"
#: In a line of source: a comment, a string (up to the end of the line if it ends in a later one), a keyword.
_TOKEN = re.compile(
    r"(#.*)|((?:\b[bfrtuBFRTU]{1,2})?(?P<q>\"\"\"|\'\'\'|\"|\')(?:\\.?|(?!(?P=q))[^\\])*(?:(?P=q)|$))"
    rf"|\b(?:{'|'.join(keyword.kwlist)})\b"
)
_LOOKS = (
    (_RED, r"^(?:\[[0-9][-0-9:,]*\] )?\*\*\* .*"),
    ("", r"^ *\d+ ?[ B](?:->|>>)?\t.*"),  # of pdb's `list`
    (_BOLD, r"^-> .*|^who waits for whom$|^meshrt: FAILED .*|^DID NOT FAIL|^CONSEQUENCES [A-Z ]+\b|^FAILED LATER"),
    (_CYAN, r"^> \S.*\(\d+\)[^\s()]*\(\).*|^\[(?:[\w.@-]+ )?[0-9][-0-9:,]*\](?=\s|$)"),
    (_BOLD + _RED, r"^[ \t]*(?:likely culprits:|ROOT CAUSE).*|\bkilled by SIG\w+"),
    (_YELLOW, r"\bblocked (?:< )?\d[\w.]* \w+(?: - \d[\w.]* \w+)?|\bnot[ -]answering\b"),
    (_MAGENTA, r"\bstopped in the debugger\b"),
)
_PATTERN = re.compile("|".join(f"({pattern})" for _, pattern in _LOOKS), re.MULTILINE)


def wants_colours(stream: IO[str]) -> bool:
    """Whether text is coloured there."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return not plain and is_terminal(stream)


def painted(text: str) -> str:
    """Return whole lines with their colours; a text that has colours of its own keeps those alone."""
    if "\x1b" in text:
        return text
    return _PATTERN.sub(_look, text)


def _look(found: re.Match[str]) -> str:
    colour, shown = _LOOKS[(found.lastindex or 1) - 1][0], found[0]
    if not colour or shown.startswith("-> "):
        shown = _TOKEN.sub(lambda token: f"{(_BLUE, _GREY, _GREEN)[token.lastindex or 0]}{token[0]}{_DEFAULT}", shown)
    return f"{colour}{shown}{_RESET}"


def painted_for(stream: IO[str], text: str) -> str:
    """Return whole lines with their colours if there are colours on ``stream``."""
    return painted(text) if wants_colours(stream) else text


def prompt_painted(prompt: str) -> str:
    """Return a prompt, which a person types behind, with its colour."""
    shown = prompt.rstrip()
    return f"{_BOLD}{_CYAN}{shown}{_RESET}{prompt[len(shown) :]}" if shown else prompt
