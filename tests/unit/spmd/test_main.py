"""The actor that runs a script: how it ends as the mesh is stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from meshrt.spmd import main
from meshrt.spmd.main import Main


@pytest.mark.parametrize("stopping", [True, False])
@pytest.mark.parametrize(
    ("raises", "kind"),
    [("raise KeyboardInterrupt", KeyboardInterrupt), ("raise SystemExit(3)", SystemExit), ("1 / 0", ZeroDivisionError)],
)
def test_an_end_by_a_signal_is_a_failure_unless_the_mesh_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stopping: bool, raises: str, kind: type[BaseException]
) -> None:
    path = tmp_path / "interrupted.py"
    path.write_text(raises)
    runtime = SimpleNamespace(stopping=False)

    def hears(_seconds: float) -> None:
        runtime.stopping = stopping

    monkeypatch.setattr(main, "current_runtime", lambda: runtime)
    monkeypatch.setattr(main, "has_runtime", lambda: True)
    monkeypatch.setattr("time.sleep", hears)
    monkeypatch.setattr(main, "_STOPS", 0.01)
    monkeypatch.setattr(main, "_EXITS", 0.01)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    if stopping and kind is not ZeroDivisionError:
        Main().run([str(path)])
    else:
        with pytest.raises(kind):
            Main().run([str(path)])
