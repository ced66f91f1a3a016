"""Which records of a rank are sent, and with what; which are for its own handlers."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator

import pytest

from meshrt.actor.records import RankRecords
from meshrt.hooks.clock import HostClock
from meshrt.hooks.operations import Report, body_of
from meshrt.wire.control import control_frame
from meshrt.wire.operations import Logged, LogLevels
from meshrt.wire.tree import Event

NAME = "tests.unit.records"


class Rank:
    """A rank whose root logger is as Python begins with it."""

    def __init__(self) -> None:
        self.sent: list[Logged] = []
        self.kept: list[str] = []
        self.records = RankRecords(self._report, self.kept.append, lambda: False)
        self.logger = logging.getLogger(NAME)

    def _report(self, report: Report) -> None:
        assert isinstance(report, Logged)
        self.sent.append(report)
        if report.message == "echo":
            self.logger.error("logged while it is sent")

    def messages(self) -> list[str]:
        return [logged.message for logged in self.sent]


@contextlib.contextmanager
def a_rank() -> Iterator[Rank]:
    """In the test itself: pytest adds handlers of its own after the fixtures."""
    handlers, level = logging.root.handlers, logging.root.level
    logging.root.handlers = []
    logging.root.setLevel(logging.WARNING)
    made = Rank()
    try:
        yield made
    finally:
        made.records.set_levels(LogLevels({}))
        made.records.uninstall()
        made.logger.handlers.clear()
        made.logger.setLevel(logging.NOTSET)
        made.logger.propagate = True
        logging.root.handlers = handlers
        logging.root.setLevel(level)


def test_nothing_is_sent_before_the_levels_are_known(capfd: pytest.CaptureFixture[str]) -> None:
    with a_rank() as rank:
        rank.logger.error("as always")
        assert (rank.sent, rank.kept, capfd.readouterr().err) == ([], [], "as always\n")
        rank.records.set_levels(LogLevels({"": 30}))
        rank.logger.error("sent")
        rank.records.uninstall()
        rank.logger.error("as always")
        assert rank.messages() == ["sent"] and rank.kept == [f"ERROR:{NAME}:sent"]
        assert capfd.readouterr().err == "as always\n"


def test_levels_are_those_of_the_script_unless_the_rank_has_its_own() -> None:
    with a_rank() as rank:
        other = logging.getLogger("tests.unit.other")
        other.setLevel(logging.CRITICAL)
        rank.records.set_levels(LogLevels({"": 20, NAME: 10, other.name: 10}))
        assert (logging.root.level, rank.logger.level, other.level) == (20, 10, 50)
        rank.records.set_levels(LogLevels({"": 40}))
        assert (logging.root.level, rank.logger.level, other.level) == (40, 0, 50)
        rank.logger.setLevel(logging.DEBUG)
        rank.logger.info("of the rank's own level")
        assert rank.sent == [] and rank.kept == [f"INFO:{NAME}:of the rank's own level"]
        rank.records.set_levels(LogLevels({"": 10, "tests.unit": 30}, disabled=39))
        assert rank.logger.level == logging.DEBUG
        for level in (39, 40):
            rank.logger.log(level, "level %d", level)
        assert rank.messages() == ["level 40"]
        other.setLevel(logging.NOTSET)


def test_a_handler_of_the_rank_that_prints_takes_the_place_of_sending(capfd: pytest.CaptureFixture[str]) -> None:
    with a_rank() as rank:
        rank.records.set_levels(LogLevels({}))
        with open(os.dup(2), "w") as copy, open(2, "w", closefd=False) as stream:
            for handler in (logging.NullHandler(), logging.StreamHandler(io.StringIO()), logging.StreamHandler(copy)):
                rank.logger.addHandler(handler)
            rank.logger.error("not to its standard error")
            printing = logging.StreamHandler(stream)
            printing.setLevel(logging.ERROR)
            logging.root.addHandler(printing)
            rank.logger.warning("below its level")
            rank.logger.error("printed")
            rank.logger.error("%d", "no number")
        assert rank.messages() == ["not to its standard error", "below its level"]
        shown = capfd.readouterr().err
        assert len(rank.kept) == 2 and "printed\n" in shown
        # Its three handlers say so, and nothing else does.
        assert shown.count("--- Logging error ---") == 3


def test_what_does_not_reach_the_root_logger_is_as_in_python(capfd: pytest.CaptureFixture[str]) -> None:
    with a_rank() as rank:
        rank.records.set_levels(LogLevels({}))
        rank.logger.propagate = False
        rank.logger.error("printed for want of a handler")
        rank.logger.addHandler(logging.NullHandler())
        rank.logger.error("of a library that is silent")
        assert rank.sent == [] and rank.kept == []
        assert capfd.readouterr().err == "printed for want of a handler\n"


def test_what_sending_logs_is_not_sent() -> None:
    with a_rank() as rank:
        rank.records.set_levels(LogLevels({}))
        rank.logger.error("echo")
        assert rank.messages() == ["echo"] and len(rank.kept) == 2


def test_any_record_fits_into_a_message() -> None:
    with a_rank() as rank:
        rank.records.set_levels(LogLevels({}))
        extra = {f"key{number}": "y" * 10**6 for number in range(100)} | {"huge": 1 << 70, "odd\udcff": object()}
        try:
            raise KeyError("z" * 10**6)
        except KeyError:
            rank.logger.exception("\udcff" + "\u20ac" * 10**6, extra=extra, stack_info=True)
        (logged,) = rank.sent
        assert len(control_frame(Event(logged.name(), body_of(logged)), ("m", 0))) < 1 << 20
        assert logged.message.startswith("\\udcff\u20ac") and logged.message.endswith("has the full text)")
        assert len(logged.extra) == 50 and len(rank.kept[0]) > 2 * 10**6
        assert Logged.read(body_of(logged)) == logged


def test_a_record_that_code_has_made_itself_is_sent() -> None:
    with a_rank() as rank:
        rank.records.set_levels(LogLevels({}))
        facts = {
            "name": NAME,
            "levelno": 40.0,
            "levelname": None,
            "lineno": None,
            "process": "p",
            "thread": 1 << 70,
        }
        rank.logger.handle(logging.makeLogRecord({**facts, "msg": 5, "pathname": None, "added": [1]}))
        (logged,) = rank.sent
        assert (logged.level, logged.message, logged.line, logged.pid, logged.thread) == (40, "5", 0, 0, 0)
        assert logged.extra == {"added": "[1]"} and Logged.read(body_of(logged)) == logged


def test_a_time_is_that_of_the_script() -> None:
    logged = Logged("", NAME, 30, "WARNING", "text", 1000.0, "x.py", 1, "f", 1, 1, "MainThread")
    assert logged.on_root_clock(HostClock("n2", 0, 0, 2.5)).created == 1002.5
