"""The files that keep the output of ranks: a limit for all of them together."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshrt.host import logspace
from meshrt.host.logspace import LogSpace
from meshrt.host.output import RankLog

LIMIT = 100_000
LINE = b"x" * 99 + b"\n"


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of many ranks may be short."""
    monkeypatch.setattr(logspace, "FILE_MIN", 1000)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def logs(folder: Path, space: LogSpace, count: int) -> list[RankLog]:
    return [RankLog(folder / f"{number}.log", lambda _text: None, space) for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_ranks_that_print_at_the_same_time_share_it(count: int, tmp_path: Path) -> None:
    told: list[str] = []
    ranks = logs(tmp_path, LogSpace(LIMIT, told.append), count)
    for number in range(3000):
        ranks[number % count].write(LINE)
        if number % 50 == 0:
            assert size(tmp_path) <= LIMIT + len(LINE)
    assert size(tmp_path) >= LIMIT // 4, "the room is used"
    assert all((tmp_path / f"{number}.log").stat().st_size for number in range(count)), "each keeps its last lines"
    for rank in ranks:
        rank.close()
    (line,) = told
    assert "MESHRT_LOGS_LIMIT" in line and ".log" in line


def test_there_are_not_more_and_more_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may make meshes for months whose ranks print little."""
    monkeypatch.setattr(logspace, "FINISHED_MAX", 5)
    told: list[str] = []
    for rank in logs(tmp_path, LogSpace(LIMIT, told.append), 20):
        rank.write(LINE)
        rank.close()
    assert {path.name for path in tmp_path.iterdir()} == {"15.log", "16.log", "17.log", "18.log", "19.log"}
    (line,) = told
    assert "0.log first" in line and "in 5 files" in line


def test_output_of_ranks_that_have_ended_goes_first_and_the_oldest_of_it(tmp_path: Path) -> None:
    told: list[str] = []
    space = LogSpace(LIMIT, told.append)
    *ended, last = logs(tmp_path, space, 6)
    for rank in ended:
        for _ in range(150):
            rank.write(LINE)
        rank.close()
    assert not told
    for _ in range(400):
        last.write(LINE)
    last.close()
    assert size(tmp_path) <= LIMIT + len(LINE)
    assert min(path.name for path in tmp_path.iterdir()) == "1.log"
    (line,) = told
    assert f"{tmp_path / '0.log'} first" in line


def test_a_rank_that_is_started_again_counts_once(tmp_path: Path) -> None:
    told: list[str] = []
    space = LogSpace(LIMIT, told.append)
    for _ in range(10):
        (again,) = logs(tmp_path, space, 1)
        for _ in range(30):
            again.write(LINE)
        again.close()
    assert not told and size(tmp_path) == 300 * len(LINE)
