"""Which modules end with a rank."""

from __future__ import annotations

import sys
import types

import pytest

from meshrt.actor import exiting


def test_a_blocked_import_and_a_module_of_a_site_do_not_end_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    own = types.ModuleType("of_the_site")
    own.__file__ = "/home/me/of_the_site.py"
    monkeypatch.setattr(exiting, "_of_agent", frozenset())
    monkeypatch.setitem(sys.modules, "blocked", None)  # as Python's documentation has it
    monkeypatch.setitem(sys.modules, "of_the_site", own)
    exiting.note_modules()
    assert {"blocked", "sys"} <= exiting._of_agent and "of_the_site" not in exiting._of_agent


def test_modules_of_the_user_end_whatever_is_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    own = types.ModuleType("of_the_user")
    own.__file__ = "/home/me/of_the_user.py"
    monkeypatch.setattr(exiting, "_of_agent", frozenset(sys.modules))
    monkeypatch.setitem(sys.modules, "of_the_user", own)
    monkeypatch.setitem(sys.modules, "odd", None)
    (found,) = exiting._drop_modules()
    assert found() is own and "of_the_user" not in sys.modules and "odd" in sys.modules
