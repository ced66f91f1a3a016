"""``vars`` takes the name of a variable, and options in front of it."""

from __future__ import annotations

import pytest

from tests.unit.commands.prompts import refused


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("vars --by callsite", "memory --by callsite"),
        ("vars self.x -n 2", "options such as -n must directly follow the command"),
        ("vars --sort size trainer self.x['a b'] ranks(3)", ""),
        ("vars trainer -n 2 self.x", ""),
        ("vars trainer 3", "write ranks as ranks(3)"),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    assert why in refused(line) and bool(why) == bool(refused(line))
