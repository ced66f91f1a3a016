"""A failure on one machine causes others on both, whose monotonic clocks are a day apart: the right one is named."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cluster.conftest import Cluster
from tests.faults.root_causes import RANKS, Scenario

_COUNTS = re.compile(r"(\d+) right, (\d+) ambiguous \((\d+) with a victim that leaves no evidence\), (\d+) wrong")


def _check(cluster: Cluster, seed: int, runs: int) -> None:
    words = ["-m", "tests.faults.root_causes", "--verbose", "--seed", str(seed), "--runs", str(runs)]
    done = subprocess.run(
        [*cluster.inside, sys.executable, *words],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60 + 20 * runs,
    )
    counts = _COUNTS.search(done.stdout)
    assert counts is not None, done.stdout
    right, ambiguous, silent, wrong = map(int, counts.groups())
    assert (right + ambiguous, ambiguous, wrong) == (runs, silent, 0), done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_victim_is_named(cluster: Cluster) -> None:
    """Each rank is the cause of one of these programs; all raise, and all victims leave evidence."""
    seeds = (8, 16, 24, 32)
    assert {Scenario.make(seed).cause for seed in seeds} == set(range(RANKS))
    for seed in seeds:
        _check(cluster, seed, 1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_no_victim_is_named_in_200_programs(cluster: Cluster) -> None:
    _check(cluster, 1000, 200)
