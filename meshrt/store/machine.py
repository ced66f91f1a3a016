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

__all__ = ["SEPARATE", "be_machine", "machine_of"]

#: Environment: ``1`` has each host keep what its ranks are sent by itself.
SEPARATE = "MESHRT_STORE_SEPARATE"


_own = 0


def be_machine(number: int) -> None:
    """Say which machine this process is on, and what it forks: the agent, told by the root."""
    global _own
    _own = number


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
