"""Python runs this when it starts: its folder is in PYTHONPATH (``tests/conftest.py``). It concerns host agents alone.

A rank imports the test module of its actor, and with it pytest, which takes 0.2 s, a sixth of the time of the suite. So
ranks get a module in its place, which knows what test modules do with pytest while they are imported, and imports
pytest itself for everything else.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Decorator:
    """``pytest.fixture``, ``pytest.mark.parametrize(...)``: what it decorates stays as it is."""

    def __getattr__(self, name: str) -> _Decorator:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **settings: Any) -> Any:
        decorates = len(args) == 1 and not settings and callable(args[0]) and not isinstance(args[0], _Decorator)
        return args[0] if decorates else self


class _Pytest(ModuleType):
    fixture = mark = param = _Decorator()

    @staticmethod
    def importorskip(name: str, *_: object, **_settings: object) -> ModuleType:
        return importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get("pytest") is self:
            del sys.modules["pytest"]
        return getattr(importlib.import_module("pytest"), name)


if any(word.endswith("agent_main.py") for word in sys.orig_argv[:3]):
    sys.modules["pytest"] = _Pytest("pytest")
