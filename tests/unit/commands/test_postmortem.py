"""A report and a mode are asked for in one word, and not together."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import refused


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("postmortem --list --ranks 3", "--list cannot be combined with --ranks"),
        ("postmortem on trainer --list", "a report cannot be combined with a mode"),
        ("postmortem on trainer", ""),
        ("postmortem 4711 --ranks 3", ""),
        ("postmortem 4711 trainer more", "unexpected argument 'trainer'"),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    assert why in refused(line) and bool(why) == bool(refused(line))
