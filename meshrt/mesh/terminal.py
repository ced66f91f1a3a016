"""The program's terminal: output of ranks and the runtime's own lines, whole lines only, from one thread.

All of it contains text of ranks: names, messages, stacks and what they print. Such text is escaped: it can change only
colours of the terminal (`meshrt.escapes`).

A terminal that does not take its text (paused, or slow) must not stop the root: lines wait in memory up to a limit,
beyond it they are counted and left out; the files of the run directory have them all.

Lines of ranks wait a moment for equal lines of other ranks (`meshrt.mesh.folding`), those of each mesh by its own
setting, from the first of them on. They do not wait where anything else is to be written behind them, as what the
runtime says of a rank comes behind what the rank has printed before, nor where much waits.

Log records of the runtime are among its own lines where the script has set up no logging: Python would print them
without a prefix, and a reader could not tell their origin.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

from meshrt.escapes import coloured
from meshrt.mesh.bar import ProgressBar, real_stream
from meshrt.mesh.folding import RankLines, folded
from meshrt.mesh.limiting import LineLimit
from meshrt.selection import counted

__all__ = ["Terminal", "TerminalLog"]

#: Bytes that may wait. Half of it ends the wait for equal lines, so that none is left out because others wait.
_LIMIT = 16 << 20
_log = logging.getLogger("meshrt")
_NOTHING = contextlib.nullcontext()


class _Text(NamedTuple):
    """Whole lines that are no output of ranks."""

    err: bool
    text: str


class Terminal:
    """Writes to ``sys.stdout`` and ``sys.stderr`` as they are at that time. Any thread may call it.

    Args:
        where: The command that shows the files of ranks.
    """

    def __init__(self, where: str = "meshrt logs") -> None:
        self._condition = threading.Condition()
        self._waiting: deque[_Text | RankLines] = deque()
        #: How many of them are no lines of ranks.
        self._texts = 0
        #: When the lines of each mesh behind the last of these are due; monotonic seconds.
        self._due: dict[str, float] = {}
        self._size = 0
        self._dropped = 0
        #: How many threads wait in `flush`.
        self._flushing = 0
        self._busy = False
        self._closed = False
        self._limit = LineLimit(where)
        #: Of each mesh that starts, how many ranks have started, of how many; and whether that is drawn.
        self._starts: dict[object, tuple[int, int]] = {}
        self._is_drawn = True
        self._bar: ProgressBar | None = None
        self._thread = threading.Thread(target=self._run, name="meshrt-terminal", daemon=True)
        self._thread.start()

    def write(self, text: str, *, err: bool) -> None:
        """Write whole lines: ``text`` ends with a newline."""
        with self._condition:
            if self._add(_Text(err, text), len(text), text.count("\n")):
                self._texts += 1
                self._due.clear()  # lines in front of it are due now
                self._condition.notify_all()

    def lines(self, lines: RankLines) -> None:
        """Show lines of a rank."""
        with self._condition:
            if self._add(lines, lines.size, len(lines.lines)):
                before = self._due.get(lines.mesh)
                if before is None or lines.due < before:
                    self._due[lines.mesh] = lines.due
                    self._condition.notify_all()
                elif self._hurries:
                    self._condition.notify_all()

    def _add(self, what: _Text | RankLines, size: int, count: int) -> bool:
        if self._size > _LIMIT:
            self._dropped += count
            return False
        self._waiting.append(what)
        self._size += size
        return True

    @property
    def _hurries(self) -> bool:
        """Whether lines of ranks do not wait for others."""
        return bool(self._texts or self._flushing or self._closed) or self._size > _LIMIT // 2

    def progress(self, mesh: object, done: int, total: int) -> None:
        """Show a bar of how many ranks have started, until all of all meshes have.

        Args:
            mesh: Stands for the mesh.
        """
        with self._condition:
            self._starts[mesh] = done, total
            self._is_drawn = False
            self._condition.notify_all()

    def announce(self, text: str) -> None:
        """Write a line of the runtime's own, or several."""
        self.write(f"meshrt: {text}\n", err=True)

    def flush(self, timeout: float = 2.0) -> None:
        """Wait until everything is written, at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._condition:
            self._flushing += 1
            self._condition.notify_all()
            try:
                while (self._waiting or self._busy or not self._is_drawn) and time.monotonic() < deadline:
                    self._condition.wait(deadline - time.monotonic())
            finally:
                self._flushing -= 1

    def close(self) -> None:
        """Write what is left and end the thread."""
        self.flush()
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._thread.join(1.0)

    # -- the thread

    def _run(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                while (seconds := self._seconds()) is None or seconds > 0:
                    self._condition.wait(seconds)
                over = self._closed and not self._waiting
                texts, lines = self._take()
                started = self._take_started()
                dropped = 0
                if self._dropped and not self._waiting:
                    dropped, self._dropped = self._dropped, 0
                self._busy = True
            if texts:
                self._emit(coloured("".join(each.text for each in texts)), texts[0].err)
            for err, text in self._shown(lines, end=over):
                self._emit(coloured(text), err)
            if dropped:
                left_out = f"{counted(dropped, 'line')} left out here: see the files in the run directory"
                self._emit(f"meshrt: {left_out}\n", not texts or texts[0].err)
            if started is not None:
                self._draw(*started)
            if over:
                self._draw(0, 0)
                return

    def _take_started(self) -> tuple[int, int] | None:
        """Return how many ranks have started, of how many, all meshes together; None: that is drawn."""
        if self._is_drawn:
            return None
        self._is_drawn = True
        done, total = (sum(counts) for counts in zip(*self._starts.values(), strict=True))
        if done >= total:
            self._starts.clear()
        return done, total

    def _draw(self, done: int, total: int) -> None:
        """Draw the bar, or take it away if all are done."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # as in `_emit`
            if done < total:
                self._bar = self._bar or ProgressBar("ranks started")
                self._bar.update(done, total)
            elif self._bar is not None:
                bar, self._bar = self._bar, None
                bar.close()

    def _seconds(self) -> float | None:
        """Return after how many seconds there is something to do; None: when more has come."""
        if self._closed or not self._is_drawn:
            return 0.0
        now = time.monotonic()
        told = self._limit.due
        left = None if told is None else max(0.0, told - now)
        if not self._waiting:
            return left
        if self._hurries:
            return 0.0
        due = max(0.0, min(self._due.values()) - now)
        return due if left is None else min(left, due)

    def _take(self) -> tuple[list[_Text], list[RankLines]]:
        """Take texts for one stream, or lines of ranks, as far as they are due."""
        waiting = self._waiting
        texts: list[_Text] = []
        lines: list[RankLines] = []
        if not waiting:
            return texts, lines
        first = waiting[0]
        if isinstance(first, _Text):
            while waiting and isinstance(each := waiting[0], _Text) and each.err == first.err:
                texts.append(each)
                waiting.popleft()
            self._texts -= len(texts)
            self._size -= sum(len(each.text) for each in texts)
        else:
            lines = self._take_lines()
            self._size -= sum(part.size for part in lines)
        if not self._waiting:
            self._due.clear()
        return texts, lines

    def _take_lines(self) -> list[RankLines]:
        lines: list[RankLines] = []
        if self._hurries:
            while self._waiting and isinstance(part := self._waiting[0], RankLines):
                lines.append(part)
                self._waiting.popleft()
            return lines
        now = time.monotonic()
        due = {mesh for mesh, at in self._due.items() if at <= now}
        kept: deque[_Text | RankLines] = deque()
        for each in self._waiting:
            if isinstance(each, RankLines) and each.mesh in due:
                lines.append(each)
            else:
                kept.append(each)
        self._waiting = kept
        for mesh in due:
            del self._due[mesh]
        return lines

    def _shown(self, lines: list[RankLines], *, end: bool) -> list[tuple[bool, str]]:
        """Return what is written for lines of ranks, and of lines that were left out; ``end``: nothing follows."""
        now = time.monotonic()
        shown = [(True, f"{text}\n") for text in self._limit.left_out(now)]
        shown += [(line.of.err, f"{line}\n") for line in folded(lines) if self._limit.admits(line, now)]
        if end:
            shown += [(True, f"{text}\n") for text in self._limit.left_out(now, end=True)]
        return [(err, "".join(text for _, text in run)) for err, run in groupby(shown, lambda each: each[0])]

    def _emit(self, text: str, err: bool) -> None:
        # A closed or broken terminal loses the text; the files have it.
        with contextlib.suppress(OSError, ValueError, AttributeError), self._bar.away() if self._bar else _NOTHING:
            stream = real_stream(sys.stderr if err else sys.stdout)
            if type(stream) is io.TextIOWrapper and stream.line_buffering:
                # Its buffer holds an unfinished line of the script: a line of ours must not split it.
                _write(stream.fileno(), text.encode(stream.encoding, stream.errors or "strict"))
            else:
                stream.write(text)
                stream.flush()


class TerminalLog(logging.Handler):
    """Writes records of the logger "meshrt" that no other handler would get.

    Args:
        announce: Writes a text of the runtime's own. Any thread.
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._announce = announce

    def begin(self) -> None:
        """Take what is logged from now on."""
        _log.addHandler(self)

    def end(self) -> None:
        """Undo `begin`: Python handles the records again."""
        _log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if self._has_another():
            return
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self._announce(text)

    def _has_another(self) -> bool:
        """Whether the program has configured a handler for these records."""
        logger: logging.Logger | None = _log
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it, also where another process has made the descriptor non-blocking."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
