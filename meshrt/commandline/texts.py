"""The help of commands. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from meshrt.commandline.command import AnyCommand, Group, Offer

__all__ = ["help_of", "ordered", "overview"]

_WIDTH = 118


def help_of(command: AnyCommand, offer: Offer) -> str:
    """Return the help of one command."""
    return "\n\n".join(_help_of(each, offer) for each in command.forms(offer))


def _help_of(command: AnyCommand, offer: Offer) -> str:
    also = f"  (also: {', '.join(command.aliases)})" if command.aliases else ""
    details = command.details() if callable(command.details) else command.details
    lines = [command.usage(offer) + also, command.summary, *details.splitlines()]
    rows = [(each.shown, each.help) for each in command.arguments if each.offer & offer and each.help]
    rows += [(each.written, each.help) for each in command.options_for(offer)]
    return "\n".join(lines + _table(rows))


def ordered(commands: Iterable[AnyCommand]) -> list[AnyCommand]:
    """Return commands in the order in which they are shown: by group, and by name."""
    return sorted(commands, key=lambda command: (list(Group).index(command.group), command.name))


def overview(commands: Iterable[AnyCommand], *, headings: bool = False) -> list[str]:
    """Return a line for each command.

    Args:
        headings: With a line above each group.
    """
    shown = ordered(commands)
    width = max((len(command.name) for command in shown), default=0)
    lines: list[str] = []
    for before, command in zip([None, *shown], shown, strict=False):
        if headings and (before is None or before.group is not command.group):
            lines += ["", f"{command.group.value}:"]
        lines.append(f"{'  ' if headings else ''}{command.name:{width}}  {command.summary}")
    return lines


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    width = min(24, max(len(written) for written, _ in rows))
    lines = [""]
    for written, text in rows:
        first, *more = textwrap.wrap(text, _WIDTH - width - 4) or [""]
        if len(written) > width:
            lines.append(f"  {written}")
            more, written = [first, *more], ""
        else:
            lines.append(f"  {written:{width}}  {first}".rstrip())
        lines += [f"  {'':{width}}  {line}" for line in more]
    return lines
