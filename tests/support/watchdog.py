"""A plug-in of pytest: a test that has failed is watched until its end.

The watchdogs of pytest and of its plug-in for time-outs are stopped when a test fails, as a debugger may be entered
then. What is left of the test is its teardown, which could hold up a whole run.
"""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

__all__ = ["pytest_exception_interact"]


@pytest.hookimpl(trylast=True)  # after the hook of pytest that stops its own, and after a debugger
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Arm the watchdog of pytest again; pytest stops it at the end of the test."""
    seconds = float(node.config.getini("faulthandler_timeout") or 0)
    if isinstance(node, pytest.Item) and seconds > 0:
        faulthandler.dump_traceback_later(seconds, file=node.config.stash[fault_handler_stderr_fd_key], exit=True)
