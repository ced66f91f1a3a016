"""Names of threads: in Python, and as a user types them."""

from __future__ import annotations

import re

__all__ = ["names_thread", "typed_name"]


def typed_name(name: str) -> str:
    """Return the name of a thread as a user can type it: ``loader#0 (load)`` -> ``loader_0``."""
    return re.sub(r"[^\w.-]+", "_", name.split(" ")[0]).strip("_") or "thread"


def names_thread(wanted: str, name: str) -> bool:
    """Whether ``wanted``, as a user types it, is the thread with the Python name ``name``."""
    return wanted in (name, typed_name(name))
