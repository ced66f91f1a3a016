"""Records of ranks, as the script's loggers get them; a handler that waits stops nobody."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshrt.hooks.operations import body_of
from meshrt.mesh import records as module
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.records import RecordsOfRanks, ScriptLevels
from meshrt.mesh.registry import Registry
from meshrt.mesh.shown import parse_shown
from meshrt.mesh.terminal import TerminalLog
from meshrt.transport.driver import Driver
from meshrt.wire.control import control_frame
from meshrt.wire.operations import Logged, LogLevels
from meshrt.wire.tree import Event
from tests.support.waiting import wait_until
from tests.unit.mesh.root_fakes import FakeAgent, record
from tests.unit.transport.fake_rank import SECRET, FakeTree

NAME = "tests.unit.script"


class Bench:
    def __init__(self) -> None:
        self.driver = Driver(SECRET, FakeTree())
        self.registry = Registry()
        self.registry.add(record(self.driver, FakeAgent()))
        self.handlers: dict[str, Any] = {}
        self.announced: list[str] = []
        self.shown: list[tuple[int, bool, list[tuple[str, str]]]] = []
        self.counts: list[Any] = []
        self.told: list[tuple[str, int, object]] = []
        services: Any = SimpleNamespace(on_report=self._on_report, tell_rank=lambda *told: self.told.append(told))
        reports: Any = SimpleNamespace(show=self._show, dropped=self.counts.extend)
        self.live = LiveLogs(parse_shown("on", ""))
        self.records = RecordsOfRanks(self.registry, services, reports, self.live, self.announced.append)
        self.levels = ScriptLevels(self.registry, services, self.live)
        self.logger = logging.getLogger(NAME)

    def _on_report(self, report: type[Logged], handler: Any) -> None:
        self.handlers[report.name()] = handler

    def _show(self, _mesh: MeshRecord, rank: int, err: bool, lines: Sequence[tuple[str, str]]) -> None:
        self.shown.append((rank, err, list(lines)))

    def log(self, text: str, level: int = logging.WARNING, name: str = NAME, rank: int = 1, mesh: str = "m") -> None:
        logged = Logged("", name, level, "L", text, 1.5, "/a/x.py", 7, "f", 1, 1, "MainThread", error="Error: y")
        self.handlers["log"](mesh, rank, logged)


class Taking(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[logging.LogRecord] = []
        self.go_on = threading.Event()
        self.begun = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.begun.set()
        self.go_on.wait(20)
        self.found.append(record)


@contextlib.contextmanager
def a_bench() -> Iterator[Bench]:
    """In the test itself: pytest adds handlers of its own after the fixtures."""
    handlers = logging.root.handlers
    logging.root.handlers = []
    made = Bench()
    try:
        yield made
    finally:
        made.records.end()
        made.logger.handlers.clear()
        made.logger.setLevel(logging.NOTSET)
        made.driver.close()
        logging.root.handlers = handlers


def test_a_record_is_handled_as_one_of_the_script() -> None:
    with a_bench() as bench:
        handler = Taking()
        handler.go_on.set()
        bench.logger.addHandler(handler)
        bench.log("below", logging.INFO)
        bench.log("text", name=f"{NAME}.unknown")
        bench.log("forgotten", mesh="gone")
        bench.records.end()
        (found,) = handler.found
        assert (found.name, found.getMessage(), found.module, found.lineno) == (f"{NAME}.unknown", "text", "x", 7)
        assert (vars(found)["rank"], vars(found)["mesh"], found.processName, found.msecs) == (1, "m", "m n=1", 500.0)
        assert logging.Formatter().format(found) == "text\nError: y" and bench.shown == []
        assert f"{NAME}.unknown" not in logging.root.manager.loggerDict


def test_a_record_can_do_nothing_to_a_terminal() -> None:
    with a_bench() as bench:
        handler = Taking()
        handler.go_on.set()
        bench.logger.addHandler(handler)
        text = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\ntwo lines"
        logged = Logged("a\n[b", NAME, 30, "L\x1b[A", text, 1.5, "/x.py", 7, "f\n", 1, 1, "T\r", error="E: \x9b2J")
        bench.handlers["log"]("m", 1, logged)
        bench.records.end()
        (found,) = handler.found
        shown = "\\e]0;title\\x07\\e[2J\x1b[31mred\x1b[0m\ntwo lines"
        assert logging.Formatter().format(found) == f"{shown}\nE: \\x9b2J"
        assert (vars(found)["actor"], found.levelname, found.funcName) == ("a\\n[b", "L\\e[A", "f\\n")
        assert (found.processName, found.threadName) == ("a\\n[b n=1", "T\\r")


def test_without_a_handler_it_is_shown_as_a_line_of_the_rank() -> None:
    with a_bench() as bench:
        terminal_log = TerminalLog(bench.announced.append)
        terminal_log.begin()
        try:
            bench.log("two\nlines")
            bench.log("of the runtime", name="meshrt")
            bench.logger.setLevel(logging.DEBUG)
            bench.log("Python would not print it", logging.INFO)
            bench.records.end()
        finally:
            terminal_log.end()
        assert bench.shown == [
            (1, True, [("m", "two"), ("m", "lines"), ("m", "Error: y")]),
            (1, True, [("m", "of the runtime"), ("m", "Error: y")]),
        ]
        assert bench.announced == []


def test_a_level_of_what_is_shown_takes_the_place_of_the_root_loggers() -> None:
    with a_bench() as bench:
        bench.live.set_program(parse_shown("level=error", ""))
        bench.live.set_mesh(bench.registry.meshes["m"], parse_shown("level=info", ""))
        assert bench.levels.of(bench.registry.meshes["m"]).levels[""] == logging.INFO
        bench.log("debug", logging.DEBUG)
        bench.log("info", logging.INFO)
        handler = Taking()
        handler.go_on.set()
        wait_until(lambda: bench.shown, 20)
        bench.logger.addHandler(handler)
        bench.live.set_mesh(bench.registry.meshes["m"], None)
        bench.levels.look()
        assert [cast("LogLevels", told[2]).levels[""] for told in bench.told] == [logging.ERROR] * 2
        bench.log("warning")
        bench.log("error", logging.ERROR)
        wait_until(lambda: handler.found, 20)
        bench.logger.setLevel(logging.DEBUG)
        bench.log("a logger with a level of its own", logging.DEBUG)
        bench.records.end()
        assert bench.shown == [(1, True, [("m", "info"), ("m", "Error: y")])]
        assert [record.getMessage() for record in handler.found] == ["error", "a logger with a level of its own"]


def test_a_handler_that_does_not_come_back_costs_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bench() as bench:
        monkeypatch.setattr(module, "_LIMIT", 50_000)
        handler = Taking()
        bench.logger.addHandler(handler)
        bench.log("first")
        assert handler.begun.wait(20)
        for _ in range(1000):
            bench.log("flood")
        handler.go_on.set()
        wait_until(lambda: bench.counts, 20)
        bench.records.end()
        assert len(handler.found) < 40
        assert bench.counts == [("m", 1, {"log": 1001 - len(handler.found)})]


def test_what_a_slow_handler_has_not_taken_at_the_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_bench() as bench:
        monkeypatch.setattr(module, "_PATIENCE", 0.0)
        handler = Taking()
        bench.logger.addHandler(handler)
        bench.log("first")
        assert handler.begun.wait(20)
        bench.log("second")
        bench.log("third", rank=0)
        bench.records.end()
        assert bench.counts == [("m", 1, {"log": 1}), ("m", 0, {"log": 1})]
        monkeypatch.undo()
        handler.go_on.set()
        bench.records.end()
        assert [record.getMessage() for record in handler.found] == ["first"]


def test_filters_of_a_logger_are_for_records_of_its_own_name() -> None:
    """As in Python, where only the filters of handlers see what comes from loggers below."""
    with a_bench() as bench:
        handler = Taking()
        handler.go_on.set()
        bench.logger.addHandler(handler)

        def refuses(_record: logging.LogRecord) -> bool:
            return False

        bench.logger.addFilter(refuses)
        bench.log("of this name")
        bench.log("of one below", name=f"{NAME}.unknown")
        bench.records.end()
        bench.logger.removeFilter(refuses)
        assert [record.getMessage() for record in handler.found] == ["of one below"]


def test_a_filter_that_raises_is_told_once() -> None:
    with a_bench() as bench:

        def broken(_record: logging.LogRecord) -> bool:
            raise ValueError("a bad filter")

        bench.logger.addHandler(Taking())
        bench.logger.addFilter(broken)
        bench.log("one")
        bench.log("two")
        bench.records.end()
        bench.logger.removeFilter(broken)
        assert bench.announced == ["a log record of a rank was not handled: ValueError: a bad filter"]


def test_ranks_are_told_of_levels_that_have_changed() -> None:
    with a_bench() as bench:
        mesh = bench.registry.meshes["m"]
        bench.levels.look()
        assert bench.told == [], "its ranks log themselves"
        begins = bench.levels.of(mesh)
        bench.levels.look()
        assert bench.told == []
        bench.logger.setLevel(logging.DEBUG)
        assert bench.levels.of(mesh) == begins, "a rank that is started again has what the others have"
        agent = cast("FakeAgent", mesh.agent_of[0])
        agent.full = True
        bench.levels.look()
        assert bench.told == [], "what nobody reads is not repeated"
        agent.full = False
        bench.levels.look()
        assert [told[:2] for told in bench.told] == [("m", 0), ("m", 1)]
        levels = bench.told[0][2]
        assert isinstance(levels, LogLevels) and levels.levels[NAME] == logging.DEBUG
        bench.levels.look()
        assert len(bench.told) == 2 and bench.levels.of(mesh) == levels


def test_a_handler_may_end_the_program_or_try_to_exit() -> None:
    with a_bench() as bench:

        class Ending(logging.Handler):
            def emit(self, _record: logging.LogRecord) -> None:
                bench.records.end()
                sys.exit(3)

        bench.logger.addHandler(Ending())
        bench.log("one")
        bench.log("two")
        bench.records.end()
        assert bench.announced == ["a log record of a rank was not handled: SystemExit: 3"] and not bench.counts


def test_any_level_of_python_can_be_sent() -> None:
    with a_bench() as bench:
        for level in (True, 1 << 70):
            mesh = bench.registry.meshes["m"]
            mesh.levels = None
            bench.logger.setLevel(level)
            levels = bench.levels.of(mesh)
            assert control_frame(Event(levels.name(), body_of(levels)), ("m", 0))
            assert type(levels.levels[NAME]) is int


def test_what_comes_when_no_thread_can_be_started_is_handled_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with a_bench() as bench:
        handler = Taking()
        handler.go_on.set()
        bench.logger.addHandler(handler)
        monkeypatch.setattr(threading.Thread, "start", start)
        bench.log("the last words")
        bench.records.end()
        assert [record.getMessage() for record in handler.found] == ["the last words"]
