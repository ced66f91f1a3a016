"""In programs made from a seed the right rank is named, or all that it may have been."""

from __future__ import annotations

import pytest

from tests.faults.root_causes import CAUSES, VICTIMS, Scenario, run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_victim_is_named(seed: int) -> None:
    scenario = Scenario.make(seed)
    outcome = run(scenario)
    print(outcome.report)
    assert outcome.verdict == "right" or (outcome.verdict == "ambiguous" and scenario.silent), str(scenario)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_no_victim_is_named_in_200_programs() -> None:
    outcomes = [run(Scenario.make(seed)) for seed in range(1000, 1200)]
    wrong = [outcome for outcome in outcomes if outcome.verdict == "wrong"]
    assert not wrong, "\n".join(f"{outcome.scenario}\n{outcome.report}" for outcome in wrong)
    assert all(outcome.scenario.silent for outcome in outcomes if outcome.verdict == "ambiguous")


def test_the_seeds_cover_every_kind() -> None:
    scenarios = [Scenario.make(seed) for seed in range(200)]
    assert {scenario.how for scenario in scenarios} == set(CAUSES)
    assert {how for scenario in scenarios for how, _ in scenario.victims.values()} == set(VICTIMS)
    assert any(clock for scenario in scenarios for clock in scenario.clocks.values())
