"""Log records of a rank: sent to the script, whose loggers and handlers take them. In the rank.

What Python would do with a record of which nobody has configured anything is replaced, and nothing else:

* A record goes to the script where a handler of the root logger would get it, whether there is one or not.
* A handler of the rank that writes to its standard output or error has shown the record: it is not sent as well. So no
  line comes twice, and what a rank configures itself (``basicConfig``, a library) is as it would be without meshrt.
* What the script's levels leave out is not sent. They are the levels of the loggers of the rank, too, unless that has
  set its own: a debug record that nobody wants is not even made.
* The log file of the rank has all of them, written before they are sent: a rank that dies right afterwards has said it.

Events that the root does not read in time are dropped and counted (`meshrt.transport.dropping`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from meshrt.actor.context import current_call
from meshrt.hooks.operations import Nothing, Report
from meshrt.transport.threads import RuntimeThread
from meshrt.wire.operations import Logged, LogLevels

__all__ = ["RankRecords"]

#: Characters of a message, of a traceback and of other texts: all of it fits into a control message.
_TEXT_MAX = 32 << 10
_NAME_MAX = 1000
#: Attributes that a caller has added.
_EXTRA_MAX = 50
#: Numbers on the wire have 64 bits.
_NUMBER_MAX = 1 << 63
_CUT = " ... (cut: the log file of the rank has the full text)"
#: What every record has.
_COMMON = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Way(NamedTuple):
    """The handlers that a record meets in this process.

    Attributes:
        any: There are some.
        shown: One of them writes it to standard output or error.
        whole: One of the root logger would get it.
    """

    any: bool
    shown: bool
    whole: bool


class RankRecords:
    """Takes what the loggers of this process log. Any thread.

    Args:
        report: Sends a report to the root.
        keep: Writes a text to the log file.
        typed: Whether the calling thread runs a line that a user has typed: its records are shown at the prompt.
    """

    def __init__(
        self, report: Callable[[Report], None], keep: Callable[[str], None], typed: Callable[[], bool]
    ) -> None:
        self._typed = typed
        self._report = report
        self._keep = keep
        self._levels = LogLevels({})
        #: What the loggers of this process were set to here.
        self._applied: dict[str, int] = {}
        self._applying = threading.Lock()
        self._original: Callable[[logging.Logger, logging.LogRecord], None] | None = None
        self._formatter = logging.Formatter(logging.BASIC_FORMAT)
        self._handler = logging.Handler()
        self._local = threading.local()

    def set_levels(self, levels: LogLevels) -> Nothing:
        """The script has these levels; records are sent from the first time on."""
        self._levels = levels
        self.install()
        if threading.current_thread() is threading.main_thread():
            self._apply()
        else:
            # The control thread must not wait for the lock of `logging`: a thread may be stopped that has it.
            RuntimeThread(target=self._apply, name="meshrt-log-levels", daemon=True).start()
        return Nothing()

    def install(self) -> None:
        """Begin to send records; a no-op the second time."""
        if self._original is not None:
            return
        # Not a handler of the root logger: `basicConfig` does nothing where there is one.
        original = self._original = logging.Logger.callHandlers

        def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
            if self._typed():
                original(logger, record)
                return
            way = _way(logger, record.levelno)
            if way.any or not way.whole:  # without a handler, Python prints it
                original(logger, record)
            if way.whole and not way.shown:
                self._take(record)

        logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign,assignment]

    def uninstall(self) -> None:
        """Undo `install`: a forked child has no part in the program."""
        if self._original is not None:
            logging.Logger.callHandlers = self._original  # type: ignore[method-assign,assignment]
            self._original = None

    def _take(self, record: logging.LogRecord) -> None:
        inside = getattr(self._local, "inside", False)
        self._local.inside = True
        try:
            self._keep(self._formatter.format(record))
            # In the middle of sending another one (a signal handler, or sending itself has logged): not sent.
            if not inside and self._is_wanted(record.name, record.levelno):
                self._report(_logged(record))
        except Exception:
            self._handler.handleError(record)  # as each handler of Python's does
        finally:
            self._local.inside = inside

    def _is_wanted(self, name: str, level: int) -> bool:
        levels = self._levels
        if level <= levels.disabled:
            return False
        while name and name not in levels.levels:
            name = name.rpartition(".")[0]
        return level >= levels.levels.get("" if name == "root" else name, logging.WARNING)

    def _apply(self) -> None:
        """Give the loggers of this process the levels, unless the rank has set others."""
        with self._applying:
            wanted = {"": logging.WARNING, **self._levels.levels}
            for name in {**wanted, **self._applied}:
                logger = logging.getLogger(name)
                level = wanted.get(name, logging.NOTSET)
                if logger.level in (level, self._applied.get(name, logging.NOTSET if name else logging.WARNING)):
                    logger.setLevel(level)
                    self._applied[name] = level


def _way(logger: logging.Logger, level: int) -> _Way:
    found = shown = False
    at: logging.Logger | None = logger
    while at is not None:
        for handler in at.handlers:
            found = True
            shown = shown or (level >= handler.level and _writes_to_terminal(handler))
        if not at.propagate and at.parent is not None:
            return _Way(found, shown, whole=False)
        at = at.parent
    return _Way(found, shown, whole=True)


def _writes_to_terminal(handler: logging.Handler) -> bool:
    """Whether it writes to standard output or error; ``console``: that of rich."""
    try:
        stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
        return stream is not None and stream.fileno() in (1, 2)
    except Exception:  # of any class: it is no file then
        return False


def _logged(record: logging.LogRecord) -> Logged:
    call = current_call()
    added = [(key, value) for key, value in vars(record).items() if key not in _COMMON][:_EXTRA_MAX]
    return Logged(
        actor="" if call is None else call.instance.name,
        logger=_text(record.name, _NAME_MAX),
        level=_number(record.levelno),
        level_name=_text(record.levelname, _NAME_MAX),
        message=_text(record.getMessage()),
        created=float(record.created),
        path=_text(record.pathname, _NAME_MAX),
        line=_number(record.lineno),
        function=_text(record.funcName or "", _NAME_MAX),
        pid=_number(record.process),
        thread=_number(record.thread),
        thread_name=_text(record.threadName or "", _NAME_MAX),
        task=_text(getattr(record, "taskName", None) or "", _NAME_MAX),
        error=_text(record.exc_text or ""),  # the formatter has made it
        stack=_text(record.stack_info or ""),
        extra={_text(key, _NAME_MAX): _plain(value) for key, value in added},
    )


def _number(value: object) -> int:
    """Return what can be sent of a number; 0: it is none. Code that makes records itself may give them anything."""
    return int(value) if isinstance(value, int | float) and abs(value) < _NUMBER_MAX else 0


def _plain(value: object) -> str | int | float | bool | None:
    """Return what can be sent of a value; of others that is their text."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _NUMBER_MAX):
        return value
    return _text(value, _NAME_MAX)


def _text(value: object, most: int = _TEXT_MAX) -> str:
    """Return a text that can be sent."""
    text = str(value)
    cut = text if len(text) <= most else text[:most] + _CUT
    return cut if cut.isascii() else cut.encode(errors="backslashreplace").decode()
