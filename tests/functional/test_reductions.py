"""Values that ranks reduce among themselves: errors, deaths, time-outs and cancellation."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import meshrt
from meshrt import ActorError, CallCancelled, CallTimeout, UsageError, proc_mesh
from tests.functional.test_flow import WAIT, Worker, begun
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program


def test_ranks_reduce_among_themselves() -> None:
    mesh = proc_mesh(hosts=2, gpus=3)
    workers = mesh.spawn("worker", Worker)
    assert workers.letter.reduce(operator.add).get(WAIT) == "abcdef"
    assert workers.letter.reduce(operator.add, upper=True).get(WAIT) == "ABCDEF"
    assert workers.slice(gpus=slice(1, 3)).async_letter.reduce(lambda left, right: left + right).get(WAIT) == "abcd"
    total = workers.large.reduce(np.add, 200_000).get(WAIT)
    assert total.shape == (200_000,) and set(total) == {15.0}
    assert workers.letter.options(timeout=WAIT).reduce(operator.add).get() == "abcdef"
    with pytest.raises(TypeError, match="unexpected keyword argument 'lower'"):
        workers.letter.reduce(operator.add, lower=True)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(ActorError, match=r"rank 4.*LookupError: rank 4") as caught:
        workers.fails_on.reduce(operator.add, 4).get(WAIT)
    assert caught.value.rank == 0
    with pytest.raises(UsageError, match=r"ported\(\) answers by a port: its values cannot be reduced"):
        workers.ported.reduce(operator.add)
    with pytest.raises(ActorError, match=r"rank 5 .*killed"):
        workers.exit_on.reduce(operator.add, 5).get(WAIT)


def test_a_timeout_of_a_reduction_names_all_ranks_that_may_be_the_reason() -> None:
    workers = proc_mesh(n=4).spawn("worker", Worker).get(WAIT)
    call = workers.slice(n=slice(1, 4)).beside.reduce(lambda left, _right: left)
    with pytest.raises(
        CallTimeout, match=r"worker.beside\(\): no answer within 0.01 s from 3 of 3 \(ranks 1-3"
    ) as caught:
        call.get(0.01)
    assert [place.rank for place in caught.value.missing] == [1, 2, 3]
    assert call.cancel()
    with pytest.raises(CallCancelled, match=r"3 of 3 \(ranks 1-3"):
        call.get(0)
    with pytest.raises(CallTimeout, match="3 of 3"):
        workers.slice(n=slice(1, 4)).beside.options(timeout=0.01).reduce(lambda left, _right: left).get(WAIT)


def test_a_reduction_that_is_cancelled_ends_on_all_ranks() -> None:
    workers = proc_mesh(n=4).spawn("worker", Worker).get(WAIT)

    def run() -> None:
        with meshrt.nursery() as calls:
            calls.start(workers.beside.reduce(lambda left, _right: left))
            wait_until(lambda: all("beside" in one for one in begun(workers)), WAIT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert all("cancelled beside" in one for one in begun(workers))
