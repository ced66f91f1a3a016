"""A plug-in of pytest for tests on two hosts: it skips those that make sense on one machine only, and says why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.one_machine import ONE_MACHINE

__all__ = ["pytest_collection_modifyitems", "removes_what_a_killed_script_leaves"]

_TESTS = Path(__file__).resolve().parents[1]


def _reason_of(path: Path, function: str) -> str:
    """Return why this function of a file is not run on two hosts; "": it is."""
    if not path.is_relative_to(_TESTS):
        return ""
    file = path.relative_to(_TESTS).as_posix()
    return ONE_MACHINE.get(file) or ONE_MACHINE.get(f"{file}::{function}") or ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is in the table, and what names an engine. Called by pytest, with all tests that it has found."""
    from meshrt.engine.local import LocalEngine  # start-up: conftest.py sets the environment before

    for item in items:
        reason = _reason_of(item.path, getattr(item, "originalname", item.name))
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(isinstance(each, LocalEngine) for each in parameters):
            reason = "the parameter is an engine of this machine"
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"one machine: {reason}"))


@pytest.fixture(autouse=True)
def removes_what_a_killed_script_leaves(leaves_nothing_behind: None) -> Iterator[None]:
    """Remove the runtime directory of a script that was killed, as the next program does.

    An agent on its machine would do that; its agents are on others. What agents leave stays, and fails the test.
    """
    from meshrt.transport.directories import in_use, remove_tree  # start-up: as above

    yield
    for path in Path(os.environ["MESHRT_RUNTIME_DIR"]).glob("p-*/program.json"):
        if not in_use(path.parent):
            remove_tree(path.parent)
