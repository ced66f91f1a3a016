"""The help of commands, in lines that fit the terminal on standard output."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from meshrt.commandline.command import AnyCommand, Group, Offer
from meshrt.show.table import columns
from meshrt.show.text import broken

__all__ = ["help_of", "ordered", "overview"]

#: Columns where there is no terminal, and at most.
_WIDTH = 118
#: In fewer columns the names of options would leave no room for what they mean.
_LEAST = 50


def help_of(command: AnyCommand, offer: Offer, *, width: int | None = None) -> str:
    """Return the help of one command, in lines of ``width`` columns; None: of the terminal."""
    return "\n\n".join(_help_of(each, offer, width or _room()) for each in command.forms(offer))


def _room() -> int:
    return max(_LEAST, min(columns() or _WIDTH, _WIDTH))


def _help_of(command: AnyCommand, offer: Offer, width: int) -> str:
    also = f"  (also: {', '.join(command.aliases)})" if command.aliases else ""
    details = command.details() if callable(command.details) else command.details
    lines = [*broken(command.usage(offer) + also, width, "    "), *broken(command.summary, width, "")]
    lines += _filled(details.splitlines(), width)
    rows = [(each.shown, each.help) for each in command.arguments if each.offer & offer and each.help]
    rows += [(each.written, each.help) for each in command.options_for(offer)]
    return "\n".join(lines + _table(rows, width))


def _filled(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines of text: as they are if they fit, else filled again; those with an indent are examples."""
    if all(len(line) <= width for line in lines):
        yield from lines
        return
    for text, group in groupby(lines, key=lambda line: bool(line) and not line.startswith(" ")):
        if text:
            yield from broken(" ".join(group), width, "")
        else:
            for line in group:
                yield from broken(line, width, " " * (len(line) - len(line.lstrip()) + 2))


def ordered(commands: Iterable[AnyCommand]) -> list[AnyCommand]:
    """Return commands in the order in which they are shown: by group, and by name."""
    return sorted(commands, key=lambda command: (list(Group).index(command.group), command.name))


def overview(commands: Iterable[AnyCommand], *, headings: bool = False, width: int | None = None) -> list[str]:
    """Return a line for each command.

    Args:
        headings: With a line above each group.
        width: Columns of a line; None: of the terminal. What does not fit goes on in further lines.
    """
    room = width or _room()
    shown = ordered(commands)
    names = max((len(command.name) for command in shown), default=0)
    indent = "  " * headings
    lines: list[str] = []
    for before, command in zip([None, *shown], shown, strict=False):
        if headings and (before is None or before.group is not command.group):
            lines += ["", f"{command.group.value}:"]
        lines += broken(f"{indent}{command.name:{names}}  {command.summary}", room, f"{indent}{'':{names}}  ")
    return lines


def _table(rows: Sequence[tuple[str, str]], columns: int) -> list[str]:
    if not rows:
        return []
    width = min(24, max(len(written) for written, _ in rows))
    lines = [""]
    for written, text in rows:
        first, *more = textwrap.wrap(text, columns - width - 4) or [""]
        if len(written) > width:
            lines.append(f"  {written}")
            more, written = [first, *more], ""
        else:
            lines.append(f"  {written:{width}}  {first}".rstrip())
        lines += [f"  {'':{width}}  {line}" for line in more]
    return lines
