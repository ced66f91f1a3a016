"""A plug-in of pytest: ``--processor-time N`` lists the N test functions that take the most processor time.

Wall time depends on what else runs; processor time, that of the processes a test has started and awaited included, is
what a run on few processors is made of. What takes more than 1.5 seconds is marked ``slow``.
"""

from __future__ import annotations

import collections
import resource
from collections.abc import Generator

import pytest

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    text = "list the N test functions that take the most processor time, all their parameters together"
    parser.addoption("--processor-time", type=int, default=0, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Measure, in each worker, only if that is asked for."""
    if config.getoption("--processor-time"):
        config.pluginmanager.register(_ProcessorTime(config.getoption("--processor-time")))


class _ProcessorTime:
    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._begun = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._begun = _used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.processor_time = _used() - self._begun  # type: ignore[attr-defined] # sent to the controller as well
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        functions: collections.Counter[str] = collections.Counter()
        tests: collections.Counter[str] = collections.Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                seconds = getattr(report, "processor_time", None)
                if seconds is not None:
                    name = report.nodeid.partition("[")[0]
                    functions[name] += seconds
                    tests[name] += 1
        terminalreporter.section(f"processor time: {functions.total():.0f} s, {tests.total()} tests")
        for name, seconds in functions.most_common(self._shown):
            terminalreporter.line(f"{seconds:7.2f} s  {tests[name]:4} x  {name}")


def _used() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
