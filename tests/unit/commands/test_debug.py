"""Options of ``meshrt debug`` that cannot be combined."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import refused


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("debug 1 --pid 2", "expected RUN or --pid RUN, not both (1, --pid 2)"),
        ("debug 1 --open f", "cannot be combined with RUN"),
        ("debug --json --open f", "--json cannot be combined with --open"),
        ("debug --pid 1 -c list -c c", ""),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    assert why in refused(line) and bool(why) == bool(refused(line))
