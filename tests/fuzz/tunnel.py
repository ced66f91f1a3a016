"""The two ends of ``--via``: what is asked for on another machine, and what that answers."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import meshrt.cli.tunnel
from meshrt.cli.tunnel import Served, serve, served_by
from meshrt.errors import MeshError, UsageError
from tests.fuzz.running import BAIT, Target

__all__ = ["TARGETS", "answer"]

#: Bytes that a pipe takes.
_MOST = 60_000


def _asked(data: bytes) -> None:
    """Each request is answered by one line, or ends the tunnel; nothing is run that was not asked for."""
    source, into = os.pipe()
    out, target = os.pipe()
    runs: list[Sequence[str]] = []

    def run(words: Sequence[str], columns: int) -> int:
        assert all(type(word) is str for word in words) and type(columns) is int
        runs.append(words)
        return 0

    try:
        os.write(into, data[:_MOST])
        os.close(into)
        with mock.patch.object(meshrt.cli.tunnel, "programs", list):  # no program runs
            serve(source, target, run)
    finally:
        os.close(target)
        with os.fdopen(out, "rb") as answers:
            lines = answers.readlines()
        os.close(source)
        assert all(isinstance(served_by(line), Served) for line in lines)
    assert len(runs) <= 1 and (not runs or b"run" in data)


def _answered(data: bytes) -> None:
    """What another machine says names no file outside the directory that is made for it, and is a token."""
    served = served_by(data)
    with tempfile.TemporaryDirectory() as folder:
        for each in served.programs:
            assert (Path(folder) / f"p-{each.run_id}").resolve().parent == Path(folder).resolve()
            assert bytes.fromhex(each.token)
            assert type(each.started) is float and isinstance(each.run_directory, Path)


def _requests() -> list[bytes]:
    asked = [{"do": "programs"}, {"do": "connect", "run_id": "1f"}, {"do": "run", "words": ["ps"], "columns": 80}]
    lines = [json.dumps(each).encode() + b"\n" for each in asked]
    return [*lines, lines[0] + lines[1], BAIT]


def answer(count: int, run_id: str) -> bytes:
    """Return an answer with so many programs."""
    program = {
        "run_id": run_id, "pid": 4711, "argv": ["python", "a.py"], "cwd": "/", "started": 1.5, "via": "",
        "directory": "/run/p-1f2e3d4c", "run_directory": "/tmp/1f2e3d4c", "token": "00ff",
    }  # fmt: skip
    return json.dumps({"programs": [program] * count}).encode()


def _answers() -> list[bytes]:
    return [*(answer(count, "1f2e3d4c") for count in range(3)), b'{"problem": "it has ended"}', BAIT]


TARGETS = [
    Target("tunnel-asked", _asked, _requests, (UsageError,), "json", count=2000),
    Target("tunnel-answered", _answered, _answers, (MeshError,), "json", count=2000),
]
