"""The benchmark's comparison with another commit: what differs, and what may be chance."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench import against
from bench.against import commit_of, differences, summary
from bench.options import parse
from bench.results import Results
from bench.rows import Row
from tests.support.programs import ROOT, run_python

__all__: list[str] = []

SLOW, FAST, RATE = (
    Row(key, key, unit, "calls", 16, key) for key, unit in (("slow", "us"), ("fast", "ms"), ("rate", "/s"))
)
HAS_GIT = not subprocess.run(["git", "-C", str(ROOT), "rev-parse"], capture_output=True, check=False).returncode


def results(**values: tuple[list[float], list[float]]) -> Results:
    """Return what was measured of rows: the values of this checkout, and those of the commit, a round each."""
    made = Results()
    rows = {row.key: row for row in (SLOW, FAST, RATE)}
    for each in zip(*(zip(*both, strict=True) for both in values.values()), strict=True):
        made.begin_round()
        for key, (ours, theirs) in zip(values, each, strict=True):
            made.add([rows[key]], "meshrt", {key: ours})
            made.add([rows[key]], "abc123", {key: theirs})
    return made


def test_what_differs_beyond_its_noise() -> None:
    found = results(
        slow=([1.2, 1.3, 1.25, 1.4, 1.2], [1.0, 1.1, 1.05, 1.1, 1.15]),
        fast=([1.2, 0.9, 1.0, 1.1, 1.0], [1.0, 1.1, 1.05, 1.1, 0.95]),
        rate=([20, 22, 21, 23, 24], [10, 11, 12, 13, 14]),
    )
    first, second = differences([SLOW, FAST, RATE], "abc123", found)
    assert (first.row, first.better, second.row, second.better) == (SLOW, False, RATE, True)
    assert first.chance == pytest.approx(2 / 252)
    assert summary([SLOW, FAST, RATE], "abc123", found).splitlines() == [
        "against abc123: 2 of 3 rows differ beyond their noise",
        "  worse   slow  1.19x  slow",
        "  better  rate  1.77x  rate",
    ]


def test_what_is_not_compared_is_named() -> None:
    found = results(slow=([1.2] * 4, [1.0] * 4))
    assert summary([SLOW, FAST], "abc123", found).splitlines() == [
        "against abc123: 0 of 0 rows differ beyond their noise",
        "  not compared, as fewer than 5 rounds have values of both: slow, fast",
    ]


def test_counts_that_are_zero_have_no_ratio() -> None:
    for ours, theirs, words in ((0.0, 0.0, []), (2.0, 0.0, ["worse"]), (0.0, 2.0, ["better"])):
        found = results(slow=([ours] * 5, [theirs] * 5))
        assert ["better" if each.better else "worse" for each in differences([SLOW], "abc123", found)] == words


def test_the_chance_is_that_of_the_rank_sum() -> None:
    assert against._chance([1, 2, 3], [4, 5, 6]) == pytest.approx(2 / 20)
    assert against._chance([1, 1, 1], [1, 1, 1]) == 1
    many = [float(number) for number in range(11)]
    assert against._chance(many, [number + 100 for number in many]) < 1e-4
    assert against._chance(many, many) == pytest.approx(1)


@pytest.mark.skipif(not HAS_GIT, reason="not a checkout of git")
def test_a_commit_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(commit_of("HEAD")) >= 7
    with pytest.raises(ValueError, match="there is no such commit; expected a branch, a tag or a hash"):
        commit_of("nonsense")
    for wrong in (
        ["--against", "nonsense"],
        ["--against", "HEAD", "--rounds", "3"],
        ["--against", "HEAD", "--peers", "mp"],
    ):
        with pytest.raises(SystemExit):
            parse(wrong)
        assert "--against" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr(against, "ROOT", Path("/"))
    with pytest.raises(ValueError, match="is no checkout of git"):
        commit_of("HEAD")


@pytest.mark.slow
@pytest.mark.skipif(not HAS_GIT, reason="not a checkout of git")
def test_two_commits_are_measured_in_turns(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    options = ("--against", "HEAD", "--quick", "--ranks", "2", "--rows", "one_p50", "--json", str(numbers))
    done = run_python("-m", "bench", *options, cwd=ROOT, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(numbers.read_text())["rows"]
    assert {name: len(values) for name, values in row["rounds"].items()} == {"meshrt": 5, commit_of("HEAD"): 5}
    assert f"against {commit_of('HEAD')}: " in done.stdout


@pytest.mark.slow
def test_a_message_to_a_port_is_measured_beside_a_broadcast(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    options = ("--quick", "--rounds", "1", "--peers", "meshrt", "--rows", "port_send", "--json", str(numbers))
    done = run_python("-m", "bench", *options, cwd=ROOT, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(numbers.read_text())["rows"]
    assert row["rounds"]["meshrt"][0] > 0 and "<= 1 x" in done.stdout
