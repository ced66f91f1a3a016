"""The owner of a source file: the runtime, Python, a library, or the user. By its name alone.

This module imports nothing of meshrt.
"""

from __future__ import annotations

import os
from functools import lru_cache
from types import TracebackType

__all__ = [
    "COMMAND_FILE",
    "EVENT_LOOP_FILES",
    "FAULTHANDLER_HIDES",
    "INSTALLED",
    "RUNTIME_FILES",
    "STDLIB_FILES",
    "is_library_file",
    "users_part",
    "without_runtime",
]

#: Files below this directory belong to the runtime, all others do not.
RUNTIME_FILES = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: ... below this one Python's, apart from those that have one of the next ones in their path.
STDLIB_FILES = os.path.join(os.path.dirname(os.__file__), "")
#: The end of the path of the command ``meshrt``, as pip installs it: the first frame of a script that it runs.
COMMAND_FILE = os.path.join(os.sep, "bin", "meshrt")
#: Parts of lines of faulthandler: of the runtime, or of how Python was started.
FAULTHANDLER_HIDES = (RUNTIME_FILES, f'{COMMAND_FILE}"', '"<frozen runpy>"')
#: The files that the event loop's compiled code names in tracebacks; they are in no installation.
EVENT_LOOP_FILES = "uvloop/"
#: Installed files have one of these in their path.
INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@lru_cache(maxsize=4096)
def is_library_file(filename: str) -> bool:
    """Whether ``filename`` came with Python or was installed: library code that the user's code calls."""
    return filename.startswith((STDLIB_FILES, "<frozen ")) or any(part in filename for part in INSTALLED)


def without_runtime(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame on that is not of the runtime, which has called it."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(RUNTIME_FILES):
        traceback = traceback.tb_next
    return traceback


def users_part(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without any frame of the runtime."""
    found: list[TracebackType] = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(RUNTIME_FILES):
            found.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for each in reversed(found):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
