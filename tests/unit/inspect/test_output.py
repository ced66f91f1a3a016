"""How many lines of a rank's output are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshrt.commandline.shell import run_words
from meshrt.errors import UsageError
from meshrt.inspect.output import line_count, tails


def test_a_rank_that_has_printed_nothing_is_told_from_others(tmp_path: Path) -> None:
    printed = {0: "(nothing)\n", 1: "\n", 2: "not yet a line", 3: ""}
    files = {rank: tmp_path / str(rank) for rank in (*printed, 4, 5)}
    for rank, text in printed.items():
        files[rank].write_text(text)
    files[5].mkdir()
    kinds = [(tail.kind, tail.text) for tail in tails(files, 10).values()]
    assert kinds == [("answered", "(nothing)"), ("answered", ""), *[("empty", "")] * 3, ("refused", "")]


def test_a_number_of_lines() -> None:
    assert [line_count(wanted) for wanted in (None, 1, 10_000)] == [10, 1, 10_000]
    for wanted in (0, -1, 10_001, True, "5"):
        with pytest.raises(UsageError, match="the number of lines is from 1 to 10000"):
            line_count(wanted)


def test_no_lines_are_not_the_usual_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_words(["logs", "-n", "0"]) == 2
    assert "the number of lines is from 1 to 10000, not 0" in capsys.readouterr().err


def test_the_record_tells_a_silent_rank_from_one_that_has_printed_nothing_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "20260101-000000-0badc0de"
    run.mkdir()
    (run / ".lock").touch()
    for rank, text in enumerate(("", "(nothing)\n")):
        (run / f"train-mesh1.{rank}.log").write_text(text)
    assert run_words(["logs", str(run), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert [(each["kind"], each["ranks"], each["text"]) for each in answers] == [
        ("empty", [0], ""), ("answered", [1], "(nothing)"),
    ]  # fmt: skip
