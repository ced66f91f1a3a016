"""The directories of a running program, kept from cleaners of temporary files. On the root's loop.

Such a cleaner removes old files: so the files of a program are given new times every few minutes. What was removed all
the same is made again within a second, or before the next mesh: directory, lock, token, ``program.json`` and the tools'
socket here, the sockets of ranks and stores by the processes that listen there. Open connections are not affected.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport import directories, dirlock, places

__all__ = ["REFRESH", "Upkeep"]

#: Seconds between two times that files are given new times.
REFRESH = 300.0


class Upkeep:
    """Looks after the directories of this program.

    Args:
        directory: The runtime directory.
        run_directory: Where the output of ranks is kept.
        announce: Prints a line.
    """

    def __init__(self, directory: Path, run_directory: Path, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._directories = directory, run_directory
        #: The paths that must exist in the runtime directory, and the functions that make them again.
        self._kept: dict[Path, Callable[[], object]] = {}
        self._others: list[Callable[[], None]] = []
        self._refreshed = time.monotonic()
        self._told: set[str] = set()
        self._over = False
        self._lock = threading.Lock()

    def keep(self, path: Path, make: Callable[[], object]) -> None:
        """Call ``make`` whenever there is nothing at ``path``, on whichever thread finds that."""
        with self._lock:
            self._kept[path] = make

    def at_look(self, function: Callable[[], None]) -> None:
        """Call ``function``, which is short, at every check."""
        self._others.append(function)

    def forget(self, function: Callable[[], None]) -> None:
        """Call a function no more that was given to `at_look`."""
        self._others.remove(function)

    def end(self) -> None:
        """Stop checking: the directories are about to be removed. Any thread."""
        with self._lock:
            self._over = True

    def mend(self) -> None:
        """Make missing files again. Costs a few ``stat`` calls if none is missing. Any thread."""
        with self._lock:
            if self._over:
                return
            removed = [path for path in self._directories if not dirlock.owns(path)]
            removed += [path for path in self._kept if not os.path.lexists(path)]
            if removed:
                self._repair(removed)

    def look(self) -> None:
        """`mend`, and the other periodic work."""
        self.mend()
        if self._over:
            return
        for function in tuple(self._others):
            function()
        if time.monotonic() - self._refreshed >= REFRESH:
            self._refreshed = time.monotonic()
            self._refresh()

    def _repair(self, removed: list[Path]) -> None:
        try:
            for path in removed:
                if path in self._kept:
                    self._kept[path]()
                else:
                    directories.repair(path)
        except (UsageError, OSError) as error:
            why = str(error) if isinstance(error, UsageError) else error.strerror
            self._tell(f"{path} was removed and cannot be created again: {why}. Terminals cannot find this program")
        else:
            self._tell(
                f"{removed[0]} was removed from outside and created again. If a cleaner of temporary files did it, set "
                "MESHRT_RUNTIME_DIR (and MESHRT_RUNS) to directories that the cleaner does not touch"
            )

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._announce(text)

    def _refresh(self) -> None:
        runtime, run = self._directories
        for path in (runtime, run) if places.is_temporary(run) else (runtime,):
            with contextlib.suppress(OSError, KeyError):  # it is being removed: the next check finds it
                dirlock.refresh(path)
                os.utime(path.parent)
