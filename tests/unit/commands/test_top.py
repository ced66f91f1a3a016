"""Options of ``meshrt top`` that cannot be combined."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import refused


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("top --json", "needs --once"),
        ("top --once --serve", "--once cannot be combined with --serve"),
        ("top --port 1", "need --serve"),
        ("top --serve --host 0.0.0.0", "expected one address of this machine"),
        ("top --serve --port 0", "from 1 to 65535"),
        ("top --sort cpuu", "did you mean 'cpu'?"),
        ("top --ranks stoped", "did you mean 'stopped'"),
        ("top --serve --host ::1", ""),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    assert why in refused(line) and bool(why) == bool(refused(line))
