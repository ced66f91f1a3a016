"""What a script calls first hands everything on."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from meshrt.engine.start import proc_mesh
from meshrt.mesh import proc_mesh as module


def test_each_option_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(module, "make_mesh", given.update)
    options = {
        name: object()
        for name, each in inspect.signature(proc_mesh).parameters.items()
        if each.kind != each.VAR_KEYWORD
    }
    proc_mesh(**options, dp=2, pp=3)  # type: ignore[arg-type]
    assert given == {**options, "sizes": {"dp": 2, "pp": 3}}
