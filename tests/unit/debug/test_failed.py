"""Failure files at the post-mortem prompt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshrt.debug.failed import Failed, failed, is_failure_file
from meshrt.debug.prompt.dumps import open_dump
from meshrt.errors import MeshError
from meshrt.failure import files
from meshrt.failure.record import ExceptionFacts, Frame
from tests.unit.failure.records import death, incident, raised

SOURCE = """import this

class Trainer:
    def step(self):
        batch = 1
        return batch / 0

    def other(self):
        pass
"""


def record_at(path: Path, line: int, source: str, function: str = "step") -> Failed:
    frame = Frame(str(path), line, function, source, {"batch": "1"})
    error = ExceptionFacts("ZeroDivisionError", "division by zero", frames=(frame,))
    return Failed(incident(raised(1, 5, exception=error)))


def test_the_root_cause_comes_first() -> None:
    found = Failed(incident(raised(2, 9, "EOFError", "closed"), raised(1, 5), death(3, 20)))
    root = found.dumps[0]
    assert (root.rank, root.endpoint, root.what) == (1, "step", "")
    assert root.exception.message == "bad batch" and root.frames[0].locals == {"batch": "[1, 2]"}
    assert root.frames[0].source == ["loss = model(batch)"], "its file is not here"
    killed = next(dump for dump in found.dumps if dump.rank == 3)
    assert killed.what == "train has failed" and killed.exception.message == "was killed by SIGKILL"
    assert not killed.frames and "train rank 3" in killed.exception.traceback
    assert "ROOT CAUSE" in found.report


def test_the_source_of_a_function(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    (frame,) = record_at(path, 6, "return batch / 0").dumps[0].frames
    assert (frame.first_line, list(frame.source)) == (4, SOURCE.splitlines()[3:6])
    (frame,) = record_at(path, 6, "return batch / 0", "<lambda>").dumps[0].frames
    assert (frame.first_line, list(frame.source)) == (1, SOURCE.splitlines()), "the lines around"
    (frame,) = record_at(path, 6, "return 7").dumps[0].frames
    assert (frame.first_line, list(frame.source)) == (6, ["return 7"]), "the file has changed"


def test_a_file_is_known_and_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.write(tmp_path, incident(raised(1, 5), raised(2, 5)))
    assert is_failure_file(path) and len(failed(path).dumps) == 2
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert open_dump(str(path), ["p batch", "r 2", "q"]) == 0
    assert "[1, 2]\ntrainer.step raised on rank 2" in capsys.readouterr().out
    empty = files.write(tmp_path, incident())
    with pytest.raises(MeshError, match="has no failures"):
        failed(empty)
    assert not is_failure_file(tmp_path / "none") and not is_failure_file(Path(__file__).parent)
