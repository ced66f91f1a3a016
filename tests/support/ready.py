"""Preloaded by ranks: notes which hooks of a rank run, and on which threads."""

from __future__ import annotations

import os
import threading

from meshrt.hooks.table import hooks

__all__ = ["DIRECTORY", "note"]

DIRECTORY = os.environ.get("MESHRT_TEST_HOOKS", "")


def note(name: str) -> None:
    """Leave a file that says on which thread this runs."""
    with open(os.path.join(DIRECTORY, name), "a") as file:
        file.write(f"{threading.current_thread().name}\n")


if DIRECTORY:
    hooks.proc_ready.append(lambda: note("ready"))
    hooks.pulse.append(lambda: note("pulse"))
    hooks.hold_changed.append(lambda held: note(f"hold-{held}"))
    hooks.proc_closing.append(lambda: note("closing"))
