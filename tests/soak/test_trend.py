"""Growth is told from noise."""

from __future__ import annotations

import random

import pytest

from tests.soak.trend import BLOCKS, trend_of

TIMES = [float(second) for second in range(600)]


def noise(seed: int, size: float) -> list[float]:
    dice = random.Random(seed)
    return [dice.gauss(0.0, size) for _ in TIMES]


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_growth_below_the_noise_is_seen(seed: int) -> None:
    trend = trend_of(TIMES, [100 + 0.02 * at + wave for at, wave in zip(TIMES, noise(seed, 5.0), strict=True)])
    assert trend is not None and trend.grows(3.0)
    assert trend.slope == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_steps_down_do_not_grow(seed: int) -> None:
    waves = noise(seed, 5.0)
    flat = trend_of(TIMES, waves)
    falling = trend_of(TIMES, [wave - 0.02 * at for at, wave in zip(TIMES, waves, strict=True)])
    assert flat is not None and falling is not None
    assert not flat.grows(3.0) and not falling.grows(0.0) and falling.score < 0


def test_a_growth_within_the_tolerance_is_none() -> None:
    trend = trend_of(TIMES, [at / 600 for at in TIMES])
    assert trend is not None and trend.score > 3 and not trend.grows(2.0)


def test_what_is_always_the_same_has_no_trend() -> None:
    trend = trend_of(TIMES, [7.0] * len(TIMES))
    assert trend is not None and (trend.slope, trend.score, trend.first, trend.last) == (0.0, 0.0, 7.0, 7.0)


def test_too_few_samples_are_no_series() -> None:
    assert trend_of(TIMES[: 2 * BLOCKS - 1], TIMES[: 2 * BLOCKS - 1]) is None
