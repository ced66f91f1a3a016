"""Who holds what a test has left behind: for the text of a failure."""

from __future__ import annotations

import gc
import re
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["holders"]

#: How far from a socket the objects are that are named.
_FAR = 4


def holders(items: Iterable[str]) -> str:
    """Return of each descriptor of a socket where it is bound and what refers to it, and the stacks of all threads.

    Args:
        items: As `tests.support.footprint.Footprint.beyond` returns them.
    """
    lines = []
    for number, inode in re.findall(r"descriptor (\d+) -> socket:\[(\d+)\]", "\n".join(items)):
        lines.append(f"descriptor {number}: unix socket {_unix_socket(inode)}")
        lines += [f"    {' <- '.join(chain)}" for chain in _chains(int(number))]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines += [f"thread {names.get(ident, ident)}", *traceback.format_stack(frame)[-6:]]
    return "\n".join(lines)


def _unix_socket(inode: str) -> str:
    """Return the line of the kernel about it, without numbers: its state, and the path of an accepted one."""
    for line in Path("/proc/net/unix").read_text().splitlines():
        fields = line.split()
        if inode in fields[6:7]:
            return f"state {fields[5]}, {' '.join(fields[7:]) or 'without a path'}"
    return "not known to the kernel"


def _chains(number: int) -> Iterator[list[str]]:
    """Yield what refers to the socket objects of a descriptor, by the types of the objects."""
    mine = {id(sys._getframe())}
    for each in [each for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() == number]:
        chain: list[object] = [each]
        while len(chain) <= _FAR:
            found = [one for one in gc.get_referrers(chain[-1]) if one is not chain and id(one) not in mine]
            found = [one for one in found if type(one).__name__ not in ("frame", "list_iterator", "list")]
            if not found:
                break
            chain.append(found[0])
        yield [f"{type(one).__module__}.{type(one).__qualname__}" for one in chain]
