"""How long an agent waits for the answers of its ranks: a clock that the test sets, ranks that answer on request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.host import gather as gather_module
from meshrt.host.gather import Gathers
from meshrt.wire.tree import Answer, Gather, Gathered


class Host:
    """Some ranks, and what the agent says of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 4) -> None:
        self.now = 100.0
        self.starved: set[int] = set()
        self.told: list[Gathered] = []
        self._later: list[tuple[float, Any]] = []
        self.children: dict[Any, Any] = {("m", n): SimpleNamespace(address=("m", n), full=False) for n in range(count)}
        monkeypatch.setattr(gather_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        dumps: Any = SimpleNamespace(
            look=lambda _child, *, ask: None,
            forget=lambda _child: None,
            lacks_processor=lambda child: child.address[1] in self.starved,
        )
        later = lambda seconds, run: self._later.append((self.now + seconds, run))  # noqa: E731
        self.gathers = Gathers(self.children, lambda _child, _frame: None, self.told.append, later, dumps)
        self.gathers.begin(Gather(7, "test", {}, 1.0, True, {"m": list(range(count))}))

    def answer(self, rank: int) -> None:
        assert self.gathers.takes(self.children["m", rank], Answer(-7, {"same": "here"}))

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._later if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._later.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end

    @property
    def kinds(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _, kind, ranks, same, _ in (group for each in self.told for group in each.groups):
            found.setdefault(same["state"] if kind == "silent" else kind, []).extend(ranks)
        return found


def test_the_time_of_a_question_counts_from_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    for rank in range(3):
        host.pass_time(0.9)
        host.answer(rank)
    host.pass_time(0.9)
    assert host.kinds == {"answered": [0, 1, 2]}
    host.pass_time(0.2)
    assert host.kinds == {"answered": [0, 1, 2], "": [3]}


def test_ranks_without_a_processor_are_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, 2)
    host.starved = {0}
    host.pass_time(3.5)
    assert not host.kinds
    host.starved.clear()
    host.answer(0)
    host.pass_time(1.1)
    assert host.kinds == {"answered": [0], "": [1]}


def test_they_are_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, 2)
    host.starved = {0}
    host.pass_time(4.2)
    assert host.kinds == {"late": [0], "": [1]}


def test_the_root_hears_of_a_question_though_no_rank_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, 2)
    host.starved = {0, 1}
    host.pass_time(3.0)
    assert not host.kinds and 9 <= len(host.told) <= 12, "four times a second"
