"""The size limit of the files that keep the output of ranks: for all ranks of one host agent together.

::

    open       a rank writes there; when it is as long as its share, it is kept as the old file and a new one begins
    finished   an old file of a rank, or the last one of a rank that has ended; the oldest go where room is short
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

__all__ = ["FILE_MAX", "FILE_MIN", "FINISHED_MAX", "LogSpace"]

#: Bytes of one file where there is room; a rank has at most two.
FILE_MAX = 32 << 20
#: ... and where many ranks share what there is.
FILE_MIN = 64 << 10
#: Finished files, also empty ones: a program may make meshes for months.
FINISHED_MAX = 10_000


class LogSpace:
    """Counts, and removes.

    Args:
        limit: Bytes. Many ranks have more: two files of `FILE_MIN` each.
        warn: Tells the user, once, which output is not kept any more.
    """

    def __init__(self, limit: int, warn: Callable[[str], None]) -> None:
        self._limit = limit
        self._warn = warn
        self._open: dict[Path, int] = {}
        #: By name, the oldest first. A path takes three times the memory of its name.
        self._finished: dict[str, int] = {}
        self._used = 0
        self._told = False

    @property
    def share(self) -> int:
        """Bytes that one open file may have now: all of them together half of the limit."""
        return min(FILE_MAX, max(FILE_MIN, self._limit // (2 * max(1, len(self._open)))))

    def opened(self, path: Path, size: int) -> None:
        """A rank writes to this file, which has so many bytes already."""
        self._used += size - self._finished.pop(str(path), 0) - self._open.get(path, 0)
        self._open[path] = size

    def grow(self, path: Path, size: int) -> None:
        """It has so many bytes more."""
        self._open[path] += size
        self._used += size
        while self._used > self._limit and self._finished:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        oldest = next(iter(self._finished))
        size = self._finished.pop(oldest)
        self._used -= size
        Path(oldest).unlink(missing_ok=True)
        if size:
            self._tell(oldest)

    def _tell(self, path: str) -> None:
        if not self._told:
            self._told = True
            self._warn(
                f"the oldest output of ranks is removed from its files, {path} first: the limit of a rank is two files "
                f"of {self.share} bytes, that of all ranks of a host agent {self._limit} bytes (MESHRT_LOGS_LIMIT) in "
                f"{FINISHED_MAX} files"
            )

    def finished(self, path: Path, kept: Path) -> None:
        """Note that a file is no longer written; ``kept`` is its name from now on, and maybe that of an older one."""
        size = self._open.pop(path, 0)
        older = self._finished.pop(str(kept), None)
        if older is not None:
            self._used -= older
            self._tell(str(kept))
        self._finished[str(kept)] = size
        if len(self._finished) > FINISHED_MAX:
            self._remove_oldest()
