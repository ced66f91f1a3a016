"""The entry for VS Code's ``.vscode/launch.json``, and putting it there without touching what else is in the file.

The file is JSON with comments and trailing commas. It is edited as text: what is not ours stays as it was typed, in the
entry, too.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from meshrt.debug.dap.wire import Fields
from meshrt.errors import UsageError
from meshrt.transport.writing import write_atomic

__all__ = ["NAME", "adapter_entry", "entry", "shown", "write_launch_json"]

#: The name by which the entry is found again.
NAME = "meshrt"
#: What VS Code is to start where no port is connected to: Python runs this directory.
ADAPTER = Path(__file__).parents[1] / "adapter"
#: What is set in an entry that is there already, or taken out: ways to the program that are not this one's.
_SET = ("type", "request", "connect", "meshToken", "listen", "debugAdapterPython", "debugAdapterPath")
_INDENT = " " * 4
#: Some editors begin files with it.
_BOM = "\ufeff"
_EMPTY = '{\n    "version": "0.2.0",\n    "configurations": []\n}\n'


def entry(port: int, token: str) -> Fields:
    """Return the launch configuration."""
    return {
        "name": NAME,
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        "meshToken": token,
        "justMyCode": True,
    }


def adapter_entry() -> Fields:
    """Return the launch configuration with which VS Code starts ``meshrt dap --stdio``, for any program."""
    return {
        "name": NAME,
        "type": "debugpy",
        "request": "attach",
        # The extension starts an adapter only if it is told of an address, or a process. Nothing listens there.
        "listen": {"host": "127.0.0.1", "port": 0},
        "debugAdapterPython": sys.executable,
        "debugAdapterPath": str(ADAPTER),
        "justMyCode": True,
    }


def shown(ours: Fields) -> str:
    """Return an entry as text."""
    return json.dumps(ours, indent=_INDENT)


def write_launch_json(folder: Path, ours: Fields) -> Path:
    """Write, or update, the entry in ``folder/.vscode/launch.json``; returns its path.

    What the user has added to the entry stays; the keys that lead to the program are set.

    Raises:
        UsageError: The file is there and is not a launch.json. It is left as it is.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    path = folder / ".vscode" / "launch.json"
    try:
        # Not as a text file: the user's line ends stay.
        text = path.read_bytes().decode("utf-8") if path.exists() else ""
        edited = _with_entry(text if text.strip(_BOM).strip() else _EMPTY, ours)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a launch.json ({error}); the file was not changed") from None
    if edited != text:
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, edited, private=True, durable=True)  # there may be a token in it
    return path


def _with_entry(text: str, ours: Fields) -> str:
    """Return ``text`` with the entry. Raises ValueError."""
    plain = _blanked(text)
    document = json.loads(plain)
    if not isinstance(document, dict):
        raise ValueError("it is not an object")
    begin = _array_of(plain, "configurations")
    spans = _elements(plain, begin)
    for start, end in spans:
        known = json.loads(plain[start:end])
        if isinstance(known, dict) and known.get("name") == NAME:
            return text[:start] + _updated(text[start:end], plain[start:end], ours) + text[end:]
    comma = "," if spans else "\n" + _INDENT
    return text[:begin] + f"\n{_INDENT * 2}{_shown(ours)}{comma}" + text[begin:]


def _updated(text: str, plain: str, ours: Fields) -> str:
    """Return the entry with what is set by us, and without what would lead elsewhere."""
    for key in _SET:
        while key not in ours and key in (members := _members(plain)):
            text = _without(text, plain, members[key])
            plain = _blanked(text)
    known, members = json.loads(plain), _members(plain)
    # The last first: the text before it keeps its place.
    ways = [key for key in _SET if key in ours]
    for key in sorted(ways, key=lambda key: members.get(key, _Member(0, 0, 0)), reverse=True):
        if known.get(key) == ours[key]:
            continue
        value = _shown(ours[key], _INDENT * 3)
        if key in members:
            _, start, end = members[key]
            text = text[:start] + value + text[end:]
        else:
            text = f"{{\n{_INDENT * 3}{json.dumps(key)}: {value}," + text[1:]
    return text


class _Member(NamedTuple):
    """The place of a member of an object: where its key begins, where its value begins, and where it ends."""

    key: int
    value: int
    end: int


def _without(text: str, plain: str, member: _Member) -> str:
    """Return an object without one of its members; it has others."""
    begin, end = member.key, member.end
    if comma := re.compile(r"\s*,").match(plain, end):
        end = comma.end()
    else:
        before = plain.rindex(",", 0, begin)
        text = f"{text[:before]} {text[before + 1 :]}"
    kept = text[:begin]
    return re.sub(r"\r?\n[ \t]*$", "", kept) + text[end:] if _ENDS_LINE.match(text, end) else kept + text[end:]


def _shown(value: object, indent: str = _INDENT * 2) -> str:
    return textwrap.indent(json.dumps(value, indent=_INDENT, ensure_ascii=False), indent).lstrip()


#: Strings, comments, and commas before a closing bracket.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMAS = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)


def _blanked(text: str) -> str:
    """Return ``text`` as JSON of the same length: spaces in place of a BOM, of comments and of trailing commas."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return _COMMAS.sub(blank, _TOKENS.sub(blank, text.replace(_BOM, " ", 1) if text.startswith(_BOM) else text))


def _array_of(plain: str, key: str) -> int:
    """Return where the elements of the array of ``key`` begin, in the outermost object."""
    member = _members(plain, plain.index("{") + 1).get(key)
    if member is None:
        raise ValueError(f"it has no list {key!r}")
    if plain[member.value] != "[":
        raise ValueError(f"{key!r} is not a list")
    return member.value + 1


def _elements(plain: str, begin: int) -> list[tuple[int, int]]:
    """Return the start and end of each element of an array whose elements begin at ``begin``."""
    spans: list[tuple[int, int]] = []
    at = _next(plain, begin)
    while plain[at] != "]":
        _, end = _DECODER.raw_decode(plain, at)
        spans.append((at, end))
        at = _next(plain, end)
    return spans


def _members(plain: str, begin: int = 1) -> dict[str, _Member]:
    """Return the place of each member of an object whose members begin at ``begin``, by its key."""
    members: dict[str, _Member] = {}
    at = _next(plain, begin)
    while plain[at] != "}":
        key, end = _DECODER.raw_decode(plain, at)
        start = _next(plain, end)
        _, end = _DECODER.raw_decode(plain, start)
        members[key] = _Member(at, start, end)
        at = _next(plain, end)
    return members


_DECODER = json.JSONDecoder()
_ENDS_LINE = re.compile(r"[ \t]*\r?\n")
_BETWEEN = re.compile(r"[^\s,:]")


def _next(plain: str, at: int) -> int:
    """Return where the next thing begins that is no space, comma or colon: the document is JSON, so there is one."""
    match = _BETWEEN.search(plain, at)
    return match.start() if match is not None else len(plain)
