"""Options of ``meshrt dap``."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import refused


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("dap --port 70000", "is not a valid port"),
        ("dap --port x", "is not a valid port"),
        ("dap --port 1 --stdio", "not allowed with argument"),
        ("dap --write-launch-json", ""),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    assert why in refused(line) and bool(why) == bool(refused(line))
