"""Another commit of meshrt as a contestant (``--against REF``), and which rows differ from it beyond their noise.

The benchmark is that of this checkout, and both commits run in this environment: only the package ``meshrt`` is that of
the other commit. Rows that the other commit cannot run fail there, and are named.
"""

import compileall
import io
import itertools
import math
import os
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.peers import CONTESTANTS, SUBJECT, Contestant
from bench.results import Results
from bench.rows import Row
from bench.runner import ROOT, search_path

__all__ = ["LEAST_ROUNDS", "Difference", "checked_out", "commit_of", "differences", "summary"]

LEAST_ROUNDS = 5
"""With fewer, no difference can be told from chance: with five, the least chance is 2 of 252."""
CHANCE = 0.01
"""A row differs if its values would lie apart like this by chance in fewer cases."""
EXACT = 20
"""Up to so many values the chance is counted."""
SMALL = 0.02
"""Differences of the medians below this share are not worth a look."""


class Difference(NamedTuple):
    """A row that differs: the median of the ratios checkout / commit, and how likely it is by chance."""

    row: Row
    ratio: float
    chance: float

    @property
    def better(self) -> bool:
        """Say whether the checkout is: larger is better in rows per second, smaller in all others."""
        return (self.ratio > 1) == (self.row.unit == "/s")


def commit_of(ref: str) -> str:
    """Return the short hash of a commit.

    Raises:
        ValueError: There is no such commit, or no repository.
    """
    done = _git("rev-parse", "--verify", "--quiet", "--short", f"{ref}^{{commit}}")
    if done.returncode:
        why = "there is no such commit" if _git("rev-parse").returncode == 0 else f"{ROOT} is no checkout of git"
        raise ValueError(f"--against {ref}: {why}; expected a branch, a tag or a hash")
    return done.stdout.decode().strip()


@contextmanager
def checked_out(commit: str) -> Iterator[Contestant]:
    """Have the package of a commit in a folder, compiled, for as long as the block lasts.

    Raises:
        SystemExit: It cannot be had, or not be imported in this environment.
    """
    done = _git("archive", commit, SUBJECT)
    if done.returncode:
        sys.exit(f"--against {commit}: {done.stderr.decode().strip()}")
    with TemporaryDirectory(prefix="bench-against-") as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        compileall.compile_dir(folder, quiet=2)  # not within its first run
        found = subprocess.run(
            [sys.executable, "-c", f"import {SUBJECT}; print({SUBJECT}.__file__)"],
            cwd=os.sep,  # that is searched first
            env={**os.environ, "PYTHONPATH": search_path(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not found.stdout.startswith(folder):
            sys.exit(f"--against {commit}: it cannot be imported here: {found.stdout}{found.stderr}")
        (subject,) = (each for each in CONTESTANTS if each.name == SUBJECT)
        yield subject._replace(name=commit, path=folder)


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        raise ValueError("--against: git is not installed") from None


def differences(rows: list[Row], commit: str, results: Results) -> list[Difference]:
    """Return the rows that differ beyond their noise: those that have become worse first, and the largest first."""
    found = []
    for row in rows:
        ours, theirs = results.values(row, SUBJECT), results.values(row, commit)
        chance = _chance(ours, theirs)
        # Of counts that are zero there is no ratio.
        ratio = results.ratio(row, commit) or (math.inf if statistics.median(ours) else 0.0)
        if chance < CHANCE and abs(ratio - 1) >= SMALL:
            found.append(Difference(row, ratio, chance))
    return sorted(found, key=lambda each: (each.better, -abs(math.log(each.ratio)) if each.ratio else -math.inf))


def _chance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided chance of a rank sum: Wilcoxon's test. Equal values share the mean of their ranks.

    It is exact, by all ways to draw as many of the values; where these are too many, by the normal distribution.
    """
    together = sorted([*ours, *theirs])
    rank = {value: together.index(value) + (together.count(value) + 1) / 2 for value in together}
    ranks = [rank[value] for value in (*ours, *theirs)]
    middle = sum(ranks) * len(ours) / len(ranks)
    off = abs(sum(ranks[: len(ours)]) - middle)
    if len(ranks) > EXACT:
        deviation = math.sqrt(len(ours) * len(theirs) * (len(ranks) + 1) / 12)
        return 2 * statistics.NormalDist().cdf(-off / deviation)
    sums = [sum(drawn) for drawn in itertools.combinations(ranks, len(ours))]
    return sum(abs(each - middle) >= off - 1e-9 for each in sums) / len(sums)


def summary(rows: list[Row], commit: str, results: Results) -> str:
    """Return the verdict: a line that counts, and one for each row that differs."""
    rounds = {row: min(len(results.values(row, name)) for name in (SUBJECT, commit)) for row in rows}
    compared = [row for row in rows if rounds[row] >= LEAST_ROUNDS]
    found = differences(compared, commit, results)
    lines = [f"against {commit}: {len(found)} of {len(compared)} rows differ beyond their noise"]
    width = max((len(each.row.key) for each in found), default=0)
    for each in found:
        word = "better" if each.better else "worse"
        lines.append(f"  {word:6}  {each.row.key:{width}}  {each.ratio:.2f}x  {each.row.label}")
    if left_out := [row.key for row in rows if row not in compared]:
        lines.append(f"  not compared, as fewer than {LEAST_ROUNDS} rounds have values of both: {', '.join(left_out)}")
    return "\n".join(lines)
