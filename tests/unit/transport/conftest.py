"""A driver, and ranks that are served by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.transport.driver import Driver
from tests.unit.transport.fake_rank import SECRET, FakeRank, FakeTree


@pytest.fixture
def tree() -> FakeTree:
    return FakeTree()


@pytest.fixture
def driver(tree: FakeTree) -> Iterator[Driver]:
    made = Driver(SECRET, tree)
    yield made
    made.close()


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[..., FakeRank]]:
    ranks: list[FakeRank] = []

    def make(name: str = "0", secret: bytes = SECRET) -> FakeRank:
        ranks.append(FakeRank(tmp_path / name, secret))
        return ranks[-1]

    yield make
    for rank in ranks:
        rank.close()
