"""The table of hooks: what is added can be taken out."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.hooks.table import Hooks


def test_what_was_added_can_be_taken_out_also_when_it_is_out_already() -> None:
    table = Hooks()
    heard: list[bool] = []
    kept: list[Callable[[bool], None]] = table.hold_changed
    remove = table.add(kept, heard.append)
    table.run(kept, True)
    remove()
    remove()
    table.run(kept, False)
    assert heard == [True] and not kept
