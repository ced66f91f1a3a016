"""Which rank a process descends from, however it was started and whatever its parent is now.

A process inherits the limits of its parent: through fork and exec, in new sessions, and with a cleared environment or
closed descriptors. One of them, the number of file locks, has had no effect since Linux 2.4.25. So every rank gets a
number of its own there, and the inherited number of a process identifies its rank.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import secrets

__all__ = ["Families", "is_of_block", "join_family", "new_family_block"]

#: RLIMIT_LOCKS, which `resource` does not name.
_LIMIT = 10
#: The low bits of a number count ranks, those above are the agent's own: a mesh may be started within a rank.
_COUNT_BITS = 28
#: ... and so many: together they are below 2**63, the limit of the kernel's interface.
_BLOCK_BITS = 34


def new_family_block() -> int:
    """Return the first bits of one host agent's numbers, which no other program uses."""
    # The highest bit is always set: a limit of an administrator never has that form, nor has "unlimited".
    return secrets.randbits(_BLOCK_BITS) | 1 << (_BLOCK_BITS - 1)


def is_of_block(pid: int, block: int) -> bool:
    """Whether a process descends from a rank of the agent with these numbers.

    Limits of other users' processes cannot be read: False for those. Raises OSError for any other error.
    """
    try:
        return resource.prlimit(pid, _LIMIT)[0] >> _COUNT_BITS == block
    except (ProcessLookupError, PermissionError):
        return False


class Families:
    """The numbers that one host agent gives to its ranks.

    Args:
        block: Their first bits: `new_family_block`.
    """

    def __init__(self, block: int) -> None:
        self._own = block
        self._counter = itertools.count()

    def new(self) -> int:
        """Return a number for a rank that is about to start."""
        return self._own << _COUNT_BITS | next(self._counter)

    def of(self, pid: int) -> int | None:
        """Return the number of a child of this process, also after its end; None if it was not made by `new`."""
        try:
            number, _ = resource.prlimit(pid, _LIMIT)
        except OSError:  # it belongs to another user now
            return None
        return number if number >> _COUNT_BITS == self._own else None


def join_family(number: int) -> None:
    """Make this process, and what it starts from now on, members of a family."""
    hard = resource.getrlimit(_LIMIT)[1]
    # Refused where an administrator has limited it: such a process cannot be identified, see `Strays`.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_LIMIT, (number, hard))
