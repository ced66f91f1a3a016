"""Log records of ranks in the script: handled by its own loggers and handlers, on a thread of their own; its levels.

A handler may take its time, or wait for a lock that a thread of the script has: the root's loop does not wait for it.
What it does not take in time waits in memory up to a limit; beyond that, records are dropped and counted. The log files
of the ranks have them.

Where the script has no handler for a record, it is shown as what the rank prints, from the level WARNING on: that is
what Python does with it. A level in the setting of what is shown (`meshrt.mesh.shown`) takes the place of that one, and
of the level of the script's root logger.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from meshrt.escapes import coloured, escaped_line
from meshrt.mesh.agent_reports import AgentReports
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.registry import Registry
from meshrt.mesh.services import Services
from meshrt.mesh.terminal import TerminalLog
from meshrt.transport.dropping import Dropped
from meshrt.wire.control import Address
from meshrt.wire.operations import Logged, LogLevels

__all__ = ["RecordsOfRanks", "ScriptLevels"]

#: Bytes that may wait for the script's handlers, and what a record costs beside its texts.
_LIMIT = 8 << 20
_COST = 2000
#: Seconds that the end of the program waits for them.
_PATIENCE = 2.0
#: So many loggers with a level of their own are told of, with names of so many characters.
_LOGGERS = 1000
_NAME_MAX = 200
#: A higher one is sent as this one: numbers on the wire have 64 bits.
_LEVEL_MAX = 1 << 62


class _Waiting(NamedTuple):
    """A record that is to be handled.

    Attributes:
        label: Who it is from, as in front of what the rank prints.
        coords: ... and where.
    """

    mesh: MeshRecord
    rank: int
    label: str
    coords: str
    logged: Logged

    @property
    def size(self) -> int:
        """Bytes, about."""
        logged = self.logged
        added = sum(len(key) + len(value) for key, value in logged.extra.items() if isinstance(value, str))
        return _COST + len(logged.message) + len(logged.error) + len(logged.stack) + added


class RecordsOfRanks:
    """Takes them on the root's loop.

    Args:
        registry, services, reports, live: Those of the root.
        announce: Prints a line. Any thread.
    """

    def __init__(
        self,
        registry: Registry,
        services: Services,
        reports: AgentReports,
        live: LiveLogs,
        announce: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._live = live
        self._reports = reports
        self._announce = announce
        self._condition = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        self._busy = False
        self._over = False
        #: By mesh id and base rank.
        self._dropped: dict[Address, Dropped] = {}
        self._failed = False
        self._thread: threading.Thread | None = None
        services.on_report(Logged, self._logged)

    def _logged(self, mesh_id: str, rank: int, logged: Logged) -> None:
        """A rank has logged something."""
        record = self._registry.meshes.get(mesh_id)
        if record is None:
            return
        label = escaped_line(logged.actor) or next(iter(record.actors_of(rank, stopped=True)), record.name)
        coords = ",".join(f"{label}={index}" for label, index in record.shape.coordinates(rank).items())
        waiting = _Waiting(record, rank, label, coords, logged)
        with self._condition:
            if self._size > _LIMIT:
                self._dropped.setdefault((mesh_id, rank), Dropped()).note(Logged.name())
                return
            self._waiting.append(waiting)
            self._size += waiting.size
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="meshrt-logging", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter exits, and starts none: `end` handles them
                    thread.start()
                    self._thread = thread
            self._condition.notify_all()

    def end(self) -> None:
        """Have those that wait handled, and end the thread. After the loop."""
        thread = self._thread
        if thread is threading.current_thread():  # a handler may end the program
            return
        if thread is None:
            self._over = True
            self._run()
            return
        deadline = time.monotonic() + _PATIENCE
        with self._condition:
            self._over = True
            self._condition.notify_all()
            while (self._waiting or self._busy) and time.monotonic() < deadline:
                self._condition.wait(deadline - time.monotonic())
            for waiting in self._waiting:
                self._dropped.setdefault((waiting.mesh.mesh_id, waiting.rank), Dropped()).note(Logged.name())
            self._waiting.clear()
            self._size = 0
            dropped, self._dropped = self._dropped, {}
        self._tell(dropped)
        thread.join(max(0.0, deadline - time.monotonic()))

    # -- the thread

    def _run(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                while not self._waiting and not self._over:
                    self._condition.wait()
                if not self._waiting:
                    return
                waiting = self._waiting.popleft()
                self._size -= waiting.size
                dropped: dict[Address, Dropped] = {}
                if not self._waiting:
                    dropped, self._dropped = self._dropped, {}
                self._busy = True
            try:
                self._handle(waiting)
            except BaseException as error:
                # From a filter of the script, or an exit: `logging` itself catches what else handlers raise.
                if not self._failed:
                    self._announce(f"a log record of a rank was not handled: {type(error).__name__}: {error}")
                self._failed = True
            self._tell(dropped)

    def _tell(self, dropped: Mapping[Address, Dropped]) -> None:
        if dropped:
            self._reports.dropped([(*address, counts.take()) for address, counts in dropped.items()])

    def _handle(self, waiting: _Waiting) -> None:
        level, wanted = waiting.logged.level, self._live.of(waiting.mesh).shown.level
        logger, exact = _logger(waiting.logged.logger)
        if level < _effective(logger, wanted) or level <= logger.manager.disable or (exact and logger.disabled):
            return
        record = _record(waiting)
        if _has_handlers(logger):
            if exact:
                logger.handle(record)
            else:  # the logger of this name, if the script had it, would not ask the filters of the one above it
                logger.callHandlers(record)
            return
        last = logging.lastResort
        if last is None or level < (last.level if wanted is None else wanted):
            return
        if not exact or logger.filter(record):
            text = logging.Formatter().format(record)
            self._reports.show(waiting.mesh, waiting.rank, True, [(waiting.label, line) for line in text.split("\n")])


def _logger(name: str) -> tuple[logging.Logger, bool]:
    """Return the logger of the script that has this name, or the nearest one above it; and whether it has the name.

    A logger that the script does not have has no handler, no level and no filter. It is not made: ranks may have many.
    """
    known = logging.root.manager.loggerDict
    above = name
    while above:
        logger = known.get(above)
        if isinstance(logger, logging.Logger):
            return logger, above == name
        above = above.rpartition(".")[0]
    return logging.root, name == logging.root.name


def _effective(logger: logging.Logger, wanted: int | None) -> int:
    """Return the level from which on a logger takes records, if that of the root logger were the wanted one."""
    while not logger.level and logger.parent is not None:
        logger = logger.parent
    return logger.level if wanted is None or logger.parent is not None else wanted


def _has_handlers(logger: logging.Logger) -> bool:
    at: logging.Logger | None = logger
    while at is not None:
        if any(not isinstance(handler, TerminalLog) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def _record(waiting: _Waiting) -> logging.LogRecord:
    """Return the record, as if the script had logged it, but for what says where it comes from.

    Its texts can do nothing to a terminal, as what ranks print; they may have several lines.
    """
    logged = waiting.logged
    file = os.path.basename(logged.path)
    attributes: dict[str, object] = {
        **logged.extra,
        "name": escaped_line(logged.logger),
        "msg": coloured(logged.message),
        "args": None,
        "levelno": logged.level,
        "levelname": escaped_line(logged.level_name),
        "pathname": logged.path,
        "filename": file,
        "module": os.path.splitext(file)[0],
        "lineno": logged.line,
        "funcName": escaped_line(logged.function),
        "created": logged.created,
        "msecs": int(logged.created % 1 * 1000) + 0.0,
        "thread": logged.thread,
        "threadName": escaped_line(logged.thread_name),
        "process": logged.pid,
        "processName": " ".join(filter(None, (waiting.label, waiting.coords))),
        "taskName": escaped_line(logged.task) or None,
        "exc_info": None,
        "exc_text": coloured(logged.error) or None,
        "stack_info": coloured(logged.stack) or None,
        "rank": waiting.rank,
        "mesh": waiting.mesh.name,
        "actor": waiting.label,
        "point": waiting.mesh.shape.extent.point(waiting.rank),
    }
    return logging.makeLogRecord(attributes)


class ScriptLevels:
    """Compares the levels with those that the ranks of each mesh were told. Python tells nobody of a change.

    Args:
        registry, services, live: Those of the root.
    """

    def __init__(self, registry: Registry, services: Services, live: LiveLogs) -> None:
        self._registry = registry
        self._services = services
        self._live = live

    def of(self, record: MeshRecord) -> LogLevels:
        """Return the levels for ranks of a mesh that are born: those that its other ranks have. Any thread."""
        if record.levels is None:
            record.levels = self._wanted(record, _levels())
        return record.levels

    def look(self) -> None:
        """Tell ranks if something has changed. On the loop, once a second."""
        script = _levels()
        for record in self._registry.running():
            levels, alive = self._wanted(record, script), record.alive()
            if record.levels not in (None, levels) and not any(record.agent_of[rank].full for rank in alive):
                record.levels = levels
                for rank in alive:
                    self._services.tell_rank(record.mesh_id, rank, levels)

    def _wanted(self, record: MeshRecord, script: LogLevels) -> LogLevels:
        level = self._live.of(record).shown.level
        return script if level is None else LogLevels({**script.levels, "": level}, script.disabled)


def _levels() -> LogLevels:
    manager = logging.root.manager
    found = {"": _number(logging.root.level)}
    for name, logger in list(manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level and len(name) <= _NAME_MAX and len(found) < _LOGGERS:
            found[name] = _number(logger.level)
    return LogLevels(found, _number(manager.disable))


def _number(level: int) -> int:
    """Return a level as a number that can be sent: Python takes any, and True."""
    return max(-_LEVEL_MAX, min(int(level), _LEVEL_MAX))
