"""Files of output as they grow: nothing twice, nothing lost, equal lines once."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.shell.following import Follower, _merged
from meshrt.host.output import RankLog
from meshrt.inspect.output import tails


class Ranks:
    """Some ranks that print, and somebody who has read their last lines and follows."""

    def __init__(self, directory: Path, count: int) -> None:
        self.files = {rank: directory / f"mesh1-m.{rank}.log" for rank in range(count)}
        self.follower = Follower()

    def prints(self, rank: int, text: str) -> None:
        with open(self.files[rank], "a") as file:
            file.write(text)

    def follow(self, count: int = 10) -> list[str]:
        read = tails(self.files, count)
        self.follower.add("mesh1", self.files, read)
        return [tail.text for tail in read.values()]

    def look(self) -> list[tuple[tuple[int, ...], str]]:
        return [(line.ranks, line.text) for line in self.follower.look()]


def test_a_progress_bar_is_one_line_in_its_latest_state(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.prints(0, "\r 10%\r 20%\n")
    assert ranks.follow() == [" 20%", ""]
    for rank in (0, 1):
        ranks.prints(rank, "\r 30%\r 40%" * (rank + 1) + "\n")
    ranks.prints(1, "a\x0bb\u2028c\r\n")
    assert ranks.look() == [((0, 1), " 40%"), ((1,), "a\x0bb\u2028c")]


def test_what_follows_begins_where_the_last_lines_end(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    ranks.prints(0, "one\ntwo\nthr")
    assert ranks.follow(1) == ["two", ""]
    assert ranks.look() == []
    ranks.prints(0, "ee\nfour\n")
    ranks.prints(1, "four\n")
    assert ranks.look() == [((0,), "three"), ((0, 1), "four")]
    assert ranks.look() == []


def test_a_rank_that_is_ahead_waits_for_those_that_print_the_same(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.follow()
    ranks.prints(0, "a\nb\n")
    ranks.prints(1, "extra\na\nb\n")
    ranks.prints(2, "b\na\n")
    assert ranks.look() == [((1,), "extra"), ((0, 1), "a"), ((0, 1, 2), "b"), ((2,), "a")]


def test_a_file_that_is_replaced_is_read_to_its_end_first(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 1)
    ranks.prints(0, "old\n")
    ranks.follow()
    ranks.prints(0, "last of the old\n")
    # As the log of a rank does it, once it is full.
    log = RankLog(ranks.files[0], warn=lambda text: None)
    log.write(b"end\n")
    log._size = 1 << 40
    log.write(b"first of the new\n")
    log.close()
    assert [text for _, text in ranks.look()] == ["last of the old", "end", "first of the new"]
    assert ranks.look() == []


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=6), min_size=1, max_size=4))
def test_every_rank_keeps_its_lines_in_order(lines: list[list[str]]) -> None:
    merged = list(_merged("m", {rank: deque(each) for rank, each in enumerate(lines) if each}))
    for rank, each in enumerate(lines):
        assert [line.text for line in merged if rank in line.ranks] == each
