"""How threads are called: by Python, and by a person who has to type it."""

from __future__ import annotations

import re

__all__ = ["names_thread", "typed_name"]


def typed_name(name: str) -> str:
    """Return the name of a thread as a person can type it: ``loader#0 (load)`` -> ``loader_0``."""
    return re.sub(r"[^\w.-]+", "_", name.split(" ")[0]).strip("_") or "thread"


def names_thread(wanted: str, name: str) -> bool:
    """Whether a person who writes ``wanted`` means the thread that Python calls ``name``."""
    return wanted in (name, typed_name(name))
