"""Whether a series of samples grows. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

__all__ = ["Trend", "trend_of"]

#: Samples are joined into this many blocks, of each of which the median counts: one sample may be of a busy moment.
BLOCKS = 24
#: Mann-Kendall statistic from which on a growth is no chance: 99.9 % of series without a trend stay below it.
CERTAIN = 3.1


@dataclass(frozen=True)
class Trend:
    """How a value has changed.

    Attributes:
        first, last: Medians of the first and the last sixth of the series.
        slope: Per second; the median of the slopes of all pairs of blocks (Theil and Sen).
        score: Mann-Kendall statistic of the blocks, in standard deviations of a series without a trend.
    """

    first: float
    last: float
    slope: float
    score: float

    def grows(self, tolerance: float) -> bool:
        """Whether it has grown, beyond chance and by more than ``tolerance`` in all."""
        return self.score > CERTAIN and self.last - self.first > tolerance


def trend_of(times: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Return the trend of samples in the order of their times; None for fewer than two a block."""
    if len(times) < 2 * BLOCKS:
        return None
    edges = [round(index * len(times) / BLOCKS) for index in range(BLOCKS + 1)]
    blocks = [(median(times[begin:end]), median(values[begin:end])) for begin, end in pairwise(edges)]
    pairs = [(right[0] - left[0], right[1] - left[1]) for left, right in combinations(blocks, 2)]
    signs = sum((rise > 0) - (rise < 0) for _, rise in pairs)
    deviation = math.sqrt(BLOCKS * (BLOCKS - 1) * (2 * BLOCKS + 5) / 18)
    sixth = BLOCKS // 6
    return Trend(
        first=median(value for _, value in blocks[:sixth]),
        last=median(value for _, value in blocks[-sixth:]),
        slope=median(rise / run for run, rise in pairs),
        score=(abs(signs) - 1) / deviation * (1 if signs > 0 else -1) if signs else 0.0,
    )
