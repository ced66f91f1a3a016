"""Which machine a process is on: only processes of one machine can map the same memory.

Hosts of one machine share what their ranks have written. ``MESHRT_STORE_SEPARATE=1`` makes each host behave as if it
were a machine of its own, to test on one machine how several behave.
"""

from __future__ import annotations

import functools
import hashlib
import os

from meshrt.hooks.plugins import SWITCH_VALUES
from meshrt.transport.kernel import boot_id

__all__ = ["SEPARATE", "be_apart", "be_machine", "is_apart", "machine_of"]

#: Environment: ``1`` has each host keep what its ranks are sent by itself.
SEPARATE = "MESHRT_STORE_SEPARATE"


_own = 0
_apart = False


def be_machine(number: int) -> None:
    """Say which machine this process is on, and what it forks: the agent, told by the root."""
    global _own
    _own = number
    be_apart()


def be_apart(apart: bool = True) -> None:
    """Say whether stores of the program do not reach each other: what is for their machines goes into messages then."""
    global _apart
    _apart = apart


def is_apart() -> bool:
    """Whether that was said."""
    return _apart


def machine_of(agent_pid: int) -> int:
    """Return the number of the machine that the processes of a host agent are on; 0 if there is no agent yet."""
    if _own:
        return _own
    if not SWITCH_VALUES.get(os.environ.get(SEPARATE, "")):
        return _number("")
    return _number(f"/{agent_pid}") if agent_pid else 0


@functools.cache
def _number(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{boot_id()}{name}".encode(), digest_size=8).digest(), "big") >> 1 | 1
