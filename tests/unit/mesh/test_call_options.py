"""The options of an endpoint: what is accepted."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from meshrt.errors import CallCancelled, CallTimeout, LimitReached, RankPlace, UsageError
from meshrt.mesh.call_options import CallOptions


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan])
def test_a_timeout_is_a_positive_number_of_seconds(timeout: float) -> None:
    with pytest.raises(UsageError, match="expected a positive, finite number of seconds"):
        CallOptions(timeout, None)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2"])
def test_a_limit_is_a_number_of_calls(limit: Any) -> None:
    with pytest.raises(UsageError, match="expected a limit for unanswered calls, an integer of 1 or more"):
        CallOptions(None, limit)


def test_errors_say_what_happened_to_the_call() -> None:
    places = [RankPlace("m", "trainer", rank, (("gpus", rank),), "n1", 4711) for rank in (1, 2)]
    cancelled = CallCancelled("trainer.step()", places, 4)
    assert str(cancelled) == "trainer.step() was cancelled by its caller; 2 of 4 (ranks 1-2) had not answered"
    timeout = CallTimeout("trainer.step()", 2.0, places[:1], 4)
    assert str(timeout) == (
        "trainer.step(): no answer within 2 s from 1 of 4 (rank 1 (gpus=1) on n1, pid 4711); "
        "the call is still running; you can wait again"
    )
    timeout.cancelled = True
    assert str(timeout).endswith("(rank 1 (gpus=1) on n1, pid 4711); the call was cancelled")
    for error in (cancelled, timeout, LimitReached("trainer.step", 8)):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
