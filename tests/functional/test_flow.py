"""The flow of calls: several at once, cancellation, time-outs, limits, urgent calls, arguments and values by rank."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshrt
from meshrt import (
    Accumulator,
    Actor,
    ActorError,
    ActorMesh,
    CallCancelled,
    CallTimeout,
    Future,
    LimitReached,
    ProcessDied,
    UsageError,
    concurrent_endpoint,
    current_rank,
    endpoint,
    proc_mesh,
)
from meshrt.transport.process import current_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program
WAIT = 20


class Worker(Actor):
    """Notes what it has begun; waits for a file."""

    def __init__(self) -> None:
        self.begun: list[Any] = []

    @endpoint
    def begin(self, what: Any, wait_for: str = "", fail: bool = False) -> Any:
        self.begun.append(what)
        while wait_for and not os.path.exists(wait_for):
            time.sleep(0.002)
        if fail:
            raise LookupError(f"{what} fails")
        return what

    @endpoint
    async def endless(self, begun_at: str = "") -> None:
        self.begun.append("endless")
        if begun_at:
            with open(f"{begun_at}.{current_rank().rank}", "w"):  # noqa: ASYNC230
                pass
        try:
            await asyncio.Event().wait()
        finally:
            self.begun.append("cancelled")

    @concurrent_endpoint
    async def beside(self) -> None:
        self.begun.append("beside")
        try:
            await asyncio.Event().wait()
        finally:
            self.begun.append("cancelled beside")

    @endpoint(urgent=True)
    def all_begun(self) -> list[Any]:
        return self.begun

    @endpoint(urgent=True)
    def begun_before(self, gate: str) -> list[Any]:
        """As `all_begun`; opens a gate on rank 0, which has asked the other ranks by then."""
        if current_rank().rank == 0:
            Path(gate).touch()
        return self.begun

    @endpoint
    def large(self, size: int) -> np.ndarray[Any, Any]:
        return np.full(size, float(current_rank().rank))

    @endpoint
    def letter(self, *, upper: bool = False) -> str:
        letter = "abcdefgh"[current_rank().rank]
        return letter.upper() if upper else letter

    @endpoint
    async def async_letter(self) -> str:
        return self.letter()

    @endpoint
    def fails_on(self, rank: int) -> int:
        if current_rank().rank == rank:
            raise LookupError(f"rank {rank}")
        return 1

    @endpoint(explicit_response_port=True)
    def ported(self, port: meshrt.Port[int]) -> None:
        port.send(1)

    @endpoint
    def exit_on(self, rank: int) -> int:
        if current_rank().rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1


class Plain(Actor):
    """Has no event loop."""

    @endpoint
    def run(self, code: Any, begun_at: str, ended_at: str, other: Any) -> None:
        try:
            code(begun_at, other)
        except BaseException as error:
            Path(ended_at).write_text(type(error).__name__)
            raise

    @endpoint
    def ping(self) -> str:
        return "pong"

    @endpoint
    def block(self) -> None:
        threading.Event().wait()

    @endpoint
    def short(self) -> str:
        deadline = time.monotonic() + 0.003
        while time.monotonic() < deadline:
            pass
        return "whole"


def _spin(begun_at: str, _other: Any) -> None:
    Path(begun_at).touch()
    while True:
        pass


def _sleep(begun_at: str, _other: Any) -> None:
    Path(begun_at).touch()
    time.sleep(1000)


def _wait_for_another(begun_at: str, other: Any) -> None:
    future = other.block.call_one()
    Path(begun_at).touch()
    future.get()


@pytest.fixture
def workers() -> ActorMesh[Worker]:
    return proc_mesh(n=2).spawn("worker", Worker).get(WAIT)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """What `Worker.begin` waits for; open at the end."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def begun(workers: ActorMesh[Worker]) -> list[list[Any]]:
    return list(workers.all_begun.call().get(WAIT).values())


# -- several futures


def test_gather_waits_for_all_and_keeps_their_order(workers: ActorMesh[Worker], gate: Path) -> None:
    first, second = workers.slice(n=0), workers.slice(n=1)
    both = meshrt.gather(first.begin.call_one("slow", str(gate)), second.begin.call_one("fast"))
    assert isinstance(both.exception(0.05), CallTimeout)
    gate.touch()
    assert both.get(WAIT) == ("slow", "fast")


def test_a_timeout_of_several_names_all_that_was_not_done(workers: ActorMesh[Worker], gate: Path) -> None:
    first, second = workers.slice(n=0), workers.slice(n=1)
    calls: list[Future[Any]] = [
        first.begin.call_one("slow", str(gate)),
        *(second.begin.call_one(text, str(gate)) for text in "ab"),
        second.letter.call_one(),
    ]
    error = meshrt.gather(*calls).exception(0.05)
    assert isinstance(error, CallTimeout) and "worker.begin(): no answer within 0.05 s from 1 of 1" in str(error)
    assert error.__notes__ == ["also not done yet: worker.begin() (2 times), worker.letter()"]
    assert not hasattr(meshrt.gather(calls[0]).exception(0), "__notes__")
    gate.touch()
    assert meshrt.gather(*calls).get(WAIT)[:3] == ("slow", "a", "b")


def test_gather_fails_with_the_first_failure_and_cancels_its_parts(workers: ActorMesh[Worker], gate: Path) -> None:
    first, second = workers.slice(n=0), workers.slice(n=1)
    slow = first.begin.call_one("slow", str(gate))
    both = meshrt.gather(slow, second.begin.call_one("wrong", fail=True))
    with pytest.raises(ActorError, match="wrong fails"):
        both.get(WAIT)
    assert not slow.done()
    third = meshrt.gather(slow)
    assert third.cancel()
    with pytest.raises(CallCancelled):
        third.get(WAIT)


def test_gather_with_errors_waits_for_all(workers: ActorMesh[Worker], gate: Path) -> None:
    first, second = workers.slice(n=0), workers.slice(n=1)
    calls = [first.begin.call_one("slow", str(gate)), second.begin.call_one("wrong", fail=True)]
    both = meshrt.gather(*calls, return_exceptions=True)
    assert isinstance(both.exception(0.05), CallTimeout)
    gate.touch()
    value, error = both.get(WAIT)
    assert value == "slow" and isinstance(error, ActorError) and "wrong fails" in str(error)


def test_wait_returns_the_first_ones(workers: ActorMesh[Worker], gate: Path) -> None:
    calls = [workers.slice(n=rank).begin.call_one(rank, wait_for=str(gate) if rank == 0 else "") for rank in (0, 1)]
    done, pending = meshrt.wait(calls, first=1).get(WAIT)
    assert (done, pending) == ([calls[1]], [calls[0]])
    assert "worker.begin" in str(meshrt.wait(calls).exception(0))
    gate.touch()
    assert meshrt.wait(calls).get(WAIT) == (calls, [])


@pytest.mark.parametrize("on_loop", [False, True])
def test_as_completed_yields_each_when_it_is_done(workers: ActorMesh[Worker], gate: Path, on_loop: bool) -> None:
    slow = workers.slice(n=0).begin.call_one("slow", str(gate))
    fast = [workers.slice(n=1).begin.call_one(number, fail=number == 1) for number in range(3)]
    seen: list[Future[Any]] = []

    def note(future: Future[Any]) -> None:
        seen.append(future)
        if len(seen) == 3:
            gate.touch()

    async def collect() -> None:
        async for future in meshrt.as_completed([slow, *fast]):
            note(future)

    if on_loop:
        asyncio.run(collect())
    else:
        for future in meshrt.as_completed([slow, *fast]):
            note(future)
    assert seen == [*fast, slow] and isinstance(seen[1].exception(), ActorError)


def test_what_is_no_future_is_refused(workers: ActorMesh[Worker]) -> None:
    wrong: Any = workers.begin
    for refused in (lambda: meshrt.gather(wrong), lambda: meshrt.wait([wrong]), lambda: meshrt.as_completed([wrong])):
        with pytest.raises(UsageError, match=r"Endpoint is not a future: expected what call\(\)"):
            refused()
    with pytest.raises(UsageError, match="there is no future to wait for"):
        meshrt.gather()
    with pytest.raises(UsageError, match="first=3: expected a number of futures, an integer from 1 to 1"):
        meshrt.wait([workers.begin.call(0)], first=3)
    assert list(meshrt.as_completed([])) == []


def test_the_end_of_a_rank_ends_a_wait_for_several(workers: ActorMesh[Worker], gate: Path) -> None:
    both = meshrt.gather(workers.begin.call("slow", str(gate)), workers.exit_on.call(1))
    gate.touch()
    with pytest.raises(ProcessDied):
        both.get(WAIT)


# -- cancellation


def test_a_call_that_has_not_begun_does_not_run(workers: ActorMesh[Worker], gate: Path) -> None:
    running = workers.begin.call("first", str(gate))
    waiting = workers.begin.call("second")
    assert waiting.cancel() and not waiting.cancel()
    with pytest.raises(CallCancelled, match=r"worker.begin\(\) was cancelled by its caller; 2 of 2 \(ranks 0-1\)"):
        waiting.get()
    gate.touch()
    running.get(WAIT)
    assert not running.cancel()
    assert begun(workers) == [["first"], ["first"]]


@pytest.mark.parametrize("name", ["endless", "beside"])
def test_an_async_endpoint_is_cancelled(workers: ActorMesh[Worker], name: str, tmp_path: Path) -> None:
    if name == "beside":
        call = workers.beside.call()
        wait_until(lambda: begun(workers) == [[name], [name]], WAIT)
    else:
        call = workers.endless.call(str(tmp_path / "begun"))
        wait_until(lambda: all((tmp_path / f"begun.{rank}").exists() for rank in (0, 1)), WAIT)
    behind = workers.begin.call("behind")
    assert call.cancel() and call.done()
    assert behind.get(WAIT).values() == ["behind", "behind"]
    cancelled = "cancelled" if name == "endless" else "cancelled beside"
    wait_until(lambda: [sorted(one) for one in begun(workers)] == 2 * [sorted([name, "behind", cancelled])], WAIT)


@pytest.mark.parametrize("code", [_spin, _sleep, _wait_for_another], ids=lambda code: code.__name__.strip("_"))
def test_a_plain_endpoint_is_interrupted_if_that_is_asked_for(code: Any, tmp_path: Path) -> None:
    mesh, begun_at, ended_at = proc_mesh(n=2), tmp_path / "begun", tmp_path / "ended"
    plain = mesh.spawn("plain", Plain)
    call = plain.slice(n=0).run.call_one(code, str(begun_at), str(ended_at), plain.slice(n=1))
    wait_until(begun_at.exists, WAIT)
    assert call.cancel(interrupt=True)
    wait_until(lambda: ended_at.exists() and ended_at.read_text() == "CallInterrupt", WAIT)
    call.when_ended(ended_at.unlink)
    wait_until(
        lambda: not ended_at.exists() or (call.done() and plain.slice(n=0).ping.call_one().get(WAIT) == ""), WAIT
    )
    assert plain.slice(n=0).ping.call_one().get(WAIT) == "pong"


def _until_gate(begun_at: str, gate: str) -> None:
    Path(begun_at).touch()
    wait_until(Path(gate).exists, WAIT)


def test_a_call_that_cannot_be_interrupted_is_said(gate: Path, caplog: pytest.LogCaptureFixture) -> None:
    mesh = proc_mesh(n=1)
    mesh.spawn("first", Plain).get(WAIT)
    plain = mesh.spawn("second", Plain)
    begun_at, ended_at = (gate.with_name(text) for text in ("begun", "ended"))
    call = plain.run.call_one(_until_gate, str(begun_at), str(ended_at), str(gate))
    behind = plain.ping.call_one()
    wait_until(begun_at.exists, WAIT)
    assert call.cancel(interrupt=True) and isinstance(call.exception(0), CallCancelled)
    said = "second.run() is not interrupted: only the actor that was spawned first"
    wait_until(lambda: said in caplog.text, WAIT)
    gate.touch()
    assert behind.get(WAIT) == "pong" and not ended_at.exists()


def test_a_call_that_was_cancelled_and_runs_on_may_be_interrupted_afterwards(tmp_path: Path) -> None:
    begun_at, ended_at = tmp_path / "begun", tmp_path / "ended"
    plain = proc_mesh(n=1).spawn("plain", Plain)
    call = plain.run.call_one(_spin, str(begun_at), str(ended_at), plain)
    wait_until(begun_at.exists, WAIT)
    assert call.cancel() and not call.cancel() and not call.ended
    assert call.cancel(interrupt=True)
    wait_until(lambda: ended_at.exists() and ended_at.read_text() == "CallInterrupt", WAIT)
    wait_until(lambda: call.ended, WAIT)
    assert not call.cancel(interrupt=True) and plain.ping.call_one().get(WAIT) == "pong"


def test_an_interrupt_is_for_the_call_that_was_cancelled_alone(tmp_path: Path) -> None:
    plain = proc_mesh(n=1).spawn("plain", Plain)
    for _ in range(30):
        first, second = plain.short.call_one(), plain.short.call_one()
        first.cancel(interrupt=True)
        assert second.get(WAIT) == "whole"


def test_a_stream_is_cancelled_where_it_is_not_answered(workers: ActorMesh[Worker], gate: Path) -> None:
    workers.slice(n=0).begin.broadcast("blocks", str(gate))
    answers = workers.begin.stream("streamed")
    first, second = answers
    assert first.get(WAIT) == "streamed"
    assert answers.cancel()
    with pytest.raises(CallCancelled, match=r"1 of 2 \(rank 0"):
        second.get()
    assert not answers.cancel()
    gate.touch()
    wait_until(lambda: begun(workers)[0] == ["blocks"], WAIT)


def test_one_future_of_a_stream_cancels_what_is_not_answered(workers: ActorMesh[Worker], gate: Path) -> None:
    workers.slice(n=0).begin.broadcast("blocks", str(gate))
    first, second = workers.begin.stream("streamed")
    assert first.get(WAIT) == "streamed" and not first.cancel()
    assert second.cancel() and not second.cancel()
    with pytest.raises(CallCancelled, match=r"1 of 2 \(rank 0"):
        second.get()
    gate.touch()
    wait_until(lambda: begun(workers)[0] == ["blocks"], WAIT)


def test_an_accumulation_is_cancelled_on_its_ranks(workers: ActorMesh[Worker], gate: Path) -> None:
    workers.slice(n=0).begin.broadcast("blocks", str(gate))
    fold = Accumulator(workers.begin, "", operator.add)
    waiting = fold.accumulate("folded")
    wait_until(lambda: begun(workers.slice(n=1)) == [["folded"]], WAIT)
    assert waiting.cancel() and isinstance(waiting.exception(0), CallCancelled) and not waiting.cancel()
    with meshrt.nursery() as calls:
        calls.start(fold.accumulate("dropped")).cancel()
        other = calls.start(workers.slice(n=1).begin.call("other"))
        gate.touch()
    assert other.get(0).values() == ["other"]
    assert begun(workers) in ([["blocks"], ["folded", "other"]], [["blocks"], ["folded", "dropped", "other"]])

    with pytest.raises(ZeroDivisionError), meshrt.nursery() as calls:  # noqa: PT012
        calls.start(Accumulator(workers.beside, None, lambda left, _right: left).accumulate())
        wait_until(lambda: all("beside" in one for one in begun(workers)), WAIT)
        raise ZeroDivisionError
    # No rank runs it any more when the block has ended.
    assert all("cancelled beside" in one for one in begun(workers))


def test_the_parts_of_a_gather_end_with_a_nursery(workers: ActorMesh[Worker]) -> None:
    with pytest.raises(ExceptionGroup, match="a call of the nursery has failed"), meshrt.nursery() as calls:  # noqa: PT012
        calls.start(meshrt.gather(workers.beside.call(), workers.beside.call()))
        wait_until(lambda: all(one.count("beside") == 2 for one in begun(workers)), WAIT)
        calls.start(workers.begin.call("wrong", fail=True))
    assert all(one.count("cancelled beside") == 2 for one in begun(workers))


def test_a_constructor_is_not_cancelled(workers: ActorMesh[Worker]) -> None:
    assert not workers.initialized.cancel()
    workers.initialized.get(WAIT)


# -- options


def test_a_call_with_a_timeout_is_cancelled_also_if_no_thread_waits(workers: ActorMesh[Worker]) -> None:
    ended: list[BaseException | None] = []
    call = workers.endless.options(timeout=0.1).call()
    call.add_done_callback(lambda future: ended.append(future.exception(0)))
    wait_until(lambda: ended, WAIT)
    error = ended[0]
    assert isinstance(error, CallTimeout) and error.cancelled and len(error.missing) == 2
    assert "no answer within 0.1 s from 2 of 2 (ranks 0-1); the call was cancelled" in str(error)
    assert workers.begin.options(timeout=WAIT).call("works").get().values() == ["works", "works"]
    wait_until(lambda: all(one[-1] == "works" for one in begun(workers)), WAIT)
    with pytest.raises(CallTimeout):
        next(iter(workers.beside.options(timeout=0.05).stream())).get()
    with pytest.raises(CallTimeout):
        asyncio.run(_awaited(workers.beside.options(timeout=0.05).call()))


async def _awaited(future: Future[Any]) -> Any:
    return await future


def test_a_limit_makes_a_thread_wait(workers: ActorMesh[Worker], gate: Path) -> None:
    begin = workers.begin.options(limit=2)
    calls = [begin.call(0, str(gate)), begin.call(1, str(gate))]
    assert not any(call.done() for call in calls)
    sent: list[Future[Any]] = []
    third = threading.Thread(target=lambda: sent.append(begin.call(2)))
    third.start()
    waits = current_runtime().driver.waits
    wait_until(lambda: third.ident in waits.entries, WAIT)
    assert not sent
    gate.touch()
    third.join(WAIT)
    assert sent[0].get(WAIT).values() == [2, 2]
    assert any(call.done() for call in calls)


def test_a_limit_refuses_a_call_on_an_event_loop(workers: ActorMesh[Worker], gate: Path) -> None:
    begin, open_gate = workers.begin.options(limit=1), gate.touch

    async def main() -> None:
        first = begin.call(1, str(gate))
        with pytest.raises(LimitReached, match=r"worker.begin\(\) was not sent: limit=1"):
            begin.call(2)
        ready = asyncio.ensure_future(begin.wait_ready())
        await asyncio.sleep(0)
        assert not ready.done()
        open_gate()
        await ready
        assert (await begin.call(3)).values() == [3, 3] and first.done()

    asyncio.run(main())
    with pytest.raises(UsageError, match="a broadcast is not answered, so no option applies to it"):
        begin.broadcast(4)


# -- nursery


def test_a_nursery_waits_for_its_calls(workers: ActorMesh[Worker], gate: Path) -> None:
    with meshrt.nursery() as calls:
        first = calls.start(workers.begin.call("a"))
        letters = calls.start(workers.letter.stream())
    assert first.done() and sorted(future.get(0) for future in letters) == ["a", "b"]
    with pytest.raises(UsageError, match="the block of this nursery has ended"):
        calls.start(workers.begin.call("late"))
    early = workers.begin.call("early", str(gate))
    with pytest.raises(UsageError, match=r"expected `with meshrt\.nursery"):
        meshrt.nursery().start(early)
    assert isinstance(early.exception(), meshrt.CallCancelled)
    with meshrt.nursery() as calls, pytest.raises(UsageError, match="int is not a call: expected what call"):
        calls.start(5)  # type: ignore[type-var]


def test_a_failure_cancels_the_other_calls_of_a_nursery(workers: ActorMesh[Worker]) -> None:
    endless = workers.beside.call()

    def run() -> None:
        with meshrt.nursery() as calls:
            calls.start(endless)
            wait_until(lambda: begun(workers) == [["beside"], ["beside"]], WAIT)
            calls.start(workers.begin.call("wrong", fail=True))

    with pytest.raises(ExceptionGroup, match="a call of the nursery has failed") as caught:
        run()
    (error,) = caught.value.exceptions
    assert isinstance(error, ActorError) and isinstance(error, LookupError)
    assert isinstance(endless.exception(0), CallCancelled)
    # No rank runs it any more when the block has ended.
    assert all("cancelled beside" in one for one in begun(workers))


def test_an_error_of_the_block_cancels_and_goes_on(workers: ActorMesh[Worker]) -> None:
    def run() -> None:
        with meshrt.nursery() as calls:
            calls.start(workers.beside.call())
            wait_until(lambda: begun(workers) == [["beside"], ["beside"]], WAIT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert begun(workers) == 2 * [["beside", "cancelled beside"]]


def test_a_failure_cancels_what_a_block_on_an_event_loop_awaits(workers: ActorMesh[Worker]) -> None:
    async def main() -> None:
        async with meshrt.nursery() as calls:
            calls.start(workers.begin.call("wrong", fail=True))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    (error,) = caught.value.exceptions
    assert isinstance(error, ActorError)

    async def timed_out() -> None:
        async with asyncio.timeout(0.05), meshrt.nursery() as calls:
            calls.start(beside)

    beside = workers.beside.call()
    wait_until(lambda: all("beside" in one for one in begun(workers)), WAIT)
    with pytest.raises(TimeoutError):
        asyncio.run(timed_out())
    assert all("cancelled beside" in one for one in begun(workers))


def test_a_call_that_the_block_itself_cancels_cancels_no_other(workers: ActorMesh[Worker]) -> None:
    heard: list[str] = []

    async def on_loop() -> None:
        async with meshrt.nursery() as calls:
            calls.start(workers.beside.call()).cancel()
            heard.append((await calls.start(workers.begin.call("on a loop"))).get(0))

    with meshrt.nursery() as calls:
        dropped = calls.start(workers.beside.call())
        dropped.cancel()
        other = calls.start(workers.begin.call("other"))
    assert other.get(0).values() == ["other", "other"] and isinstance(dropped.exception(0), CallCancelled)
    asyncio.run(on_loop())
    assert heard == ["on a loop"]


def test_an_interrupt_of_the_block_does_not_wait_for_its_calls(workers: ActorMesh[Worker], gate: Path) -> None:
    blocked = workers.begin.call("blocked", str(gate))

    def run() -> None:
        with meshrt.nursery() as calls:
            calls.start(blocked)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert isinstance(blocked.exception(0), CallCancelled) and not blocked.ended


def test_calls_that_are_cancelled_at_any_moment_end(workers: ActorMesh[Worker]) -> None:
    """Also before the first step of their task."""

    def run() -> None:
        with meshrt.nursery() as calls:
            calls.start(workers.beside.call())
            calls.start(workers.beside.call())
            raise ZeroDivisionError

    for _ in range(50):
        with pytest.raises(ZeroDivisionError):
            run()
    assert workers.begin.call("after").get(WAIT).values() == ["after", "after"]


def test_what_waits_for_several_again_and_again_leaves_nothing(workers: ActorMesh[Worker], gate: Path) -> None:
    slow = workers.slice(n=0).begin.call("slow", str(gate))
    limited = workers.slice(n=1).all_begun.options(limit=1)
    before = list(slow._callbacks or ())  # a recording that ends just now has one
    for _ in range(50):
        assert isinstance(meshrt.wait([slow]).exception(0), CallTimeout)
        assert isinstance(meshrt.gather(slow).exception(0), CallTimeout)
        limited.call()
    gc.collect()
    assert list(slow._callbacks or ()) == before
    called: list[Any] = []
    meshrt.gather(slow).add_done_callback(called.append)
    gc.collect()
    gate.touch()
    wait_until(lambda: called, WAIT)


def test_a_gather_of_gathers_fails_with_the_first_failure(workers: ActorMesh[Worker], gate: Path) -> None:
    first, second = workers.slice(n=0), workers.slice(n=1)
    slow = first.begin.call_one("slow", str(gate))
    nested = meshrt.gather(meshrt.gather(slow, second.begin.call_one("wrong", fail=True)), slow)
    with pytest.raises(ActorError, match="wrong fails"):
        nested.get(WAIT)
    assert not slow.done()


# -- urgent calls


def test_an_urgent_call_overtakes_those_that_wait(workers: ActorMesh[Worker], gate: Path) -> None:
    assert begun(workers) == [[], []]  # its link is open
    calls = [workers.begin.call(number, str(gate)) for number in range(200)]
    status = workers.all_begun.call()
    gate.touch()
    seen = status.get(WAIT).values()
    assert all(len(one) <= 1 for one in seen)
    assert calls[-1].get(WAIT).values() == [199, 199]
    assert begun(workers) == 2 * [list(range(200))]


def test_an_urgent_call_waits_for_the_constructor_and_is_answered_after_a_stop(tmp_path: Path) -> None:
    mesh = proc_mesh(n=1)
    workers = mesh.spawn("worker", Worker)
    assert workers.all_begun.call_one().get(WAIT) == []
    workers.stop()
    with pytest.raises(meshrt.MeshStopped):
        workers.all_begun.call_one().get(WAIT)
    assert mesh.spawn("worker", Worker).all_begun.call_one().get(WAIT) == []


# -- arguments and values by rank


def test_map_gives_each_rank_its_own_arguments(workers: ActorMesh[Worker]) -> None:
    assert workers.begin.map(["x", "y"]).get(WAIT).values() == ["x", "y"]
    arrays = [np.full(100_000, number) for number in (1.0, 2.0)]
    answers = workers.begin.map(arrays).get(WAIT).values()
    assert [array[0] for array in answers] == [1.0, 2.0]
    with pytest.raises(ActorError, match="y fails"):
        workers.begin.map(["x", "y"], [""] * 2, [False, True]).get(WAIT)
    with pytest.raises(TypeError, match="too many positional"):
        workers.begin.map(*[[0, 0]] * 5)
    with pytest.raises(meshrt.ArgumentNotSerializable):
        workers.begin.map([0, threading.Lock()])
    for given in (0.1, None):
        kind = type(given).__name__
        with pytest.raises(UsageError, match=rf"argument 1 is a {kind}; expected a sequence or a ValueMesh"):
            workers.begin.map(given)  # type: ignore[arg-type]
    assert workers.begin.options(limit=1, timeout=WAIT).map("pq").get().values() == ["p", "q"]


@pytest.mark.slow
def test_an_urgent_endpoint_is_urgent_on_all_ranks_that_reduce_it(workers: ActorMesh[Worker], gate: Path) -> None:
    gates = [str(gate), f"{gate}.1"]
    assert workers.begun_before.reduce(operator.add, gates[1]).get(WAIT) == []  # the links are open
    os.unlink(gates[1])
    last = [workers.begin.map([number] * 2, gates) for number in range(100)][-1]
    found = workers.begun_before.reduce(operator.add, gates[1])
    gate.touch()
    assert found.get(WAIT) == [0, 0]
    last.get(WAIT)
