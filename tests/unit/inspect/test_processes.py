"""``meshrt where --pid``: what it writes, and how it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from meshrt.errors import MeshError, UsageError
from meshrt.hooks.facts import Answered, Unanswered
from meshrt.inspect import processes
from meshrt.inspect.records import Record, StackFrame, Threads, Times
from meshrt.inspect.tree import StackAnswer

HERE = Threads([Record("MainThread", "actor", "main thread", "", "blocked", [StackFrame("/a/x.py", 3, "step")])])


def answered(rank: int) -> StackAnswer:
    return Answered("processes", (rank,), HERE, {rank: Times()})


def run(answers: Sequence[StackAnswer], monkeypatch: pytest.MonkeyPatch, **given: Any) -> int:
    monkeypatch.setattr(processes, "ask", lambda *_, **__: answers)
    pids = [os.getpid(), *range(400_000_001, 400_000_000 + len(answers))]
    return processes.show({"pids": pids, "verbose": False, "json": False, **given})


def test_equal_stacks_are_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([answered(0), answered(1)], monkeypatch) == 0
    text = capsys.readouterr().out
    assert f"   {os.getpid()}  " in text and "2 ranks of these processes\nmain thread\n  2/2  all  step" in text


def test_some_without(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gone = Unanswered("processes", (1,), "gone", "PID 400000001: there is no such process")
    assert run([answered(0), gone], monkeypatch, json=True) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["command"], record["ok"]) == ("where", False)
    assert [each["pid"] for each in record["processes"]] == [os.getpid(), 400_000_001]
    (mesh,) = record["meshes"]
    assert mesh["answered"]["ranks"] == [0] and mesh["without"][0]["why"].endswith("no such process")


@pytest.mark.parametrize(("kind", "error"), [("gone", UsageError), ("refused", MeshError)])
def test_none_at_all(kind: Any, error: type[MeshError], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(error, match=r"^why$") as raised:
        run([Unanswered("processes", (0,), kind, "why")], monkeypatch)
    assert type(raised.value) is error


def test_twice() -> None:
    with pytest.raises(UsageError, match="PID 7 is given twice"):
        processes.show({"pids": [7, 7], "verbose": False, "json": False})
