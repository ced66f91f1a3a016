"""One message on an actor: which answer it makes, in every state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import msgpack
import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.context import current_call, current_rank
from meshrt.actor.ending import StopInterrupt
from meshrt.actor.endpoint import endpoint
from meshrt.actor.execute import Execution, Executor
from meshrt.actor.setup import SetUp
from meshrt.errors import ProtocolError
from meshrt.hooks.table import hooks
from meshrt.selection import Extent, Shape
from meshrt.wire import codec
from meshrt.wire.errors import error_from_wire
from meshrt.wire.frames import Frame, FrameDecoder, split_frames
from meshrt.wire.messages import CALL, ERROR, INIT, NO_REPLY, RESULT

VIEW: bytes = msgpack.packb([*Shape.from_extent(Extent(("n",), (4,))).to_wire(), b""])


class Subject(Actor):
    def __init__(self, fail: bool = False) -> None:
        if fail:
            raise ValueError("no start")

    @endpoint
    def give(self, value: Any) -> Any:
        return value

    @endpoint
    def fail(self, error: BaseException) -> None:
        raise error

    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    @endpoint
    async def give_async(self, value: Any) -> Any:
        assert current_rank().rank == 2
        return value

    @endpoint
    async def fail_async(self, error: BaseException) -> None:
        raise error

    def __cleanup__(self, exc: object) -> None:
        raise OSError("not clean")


#: What `note_setup` has noted.
setups: list[str] = []


def note_setup() -> None:
    setups.append("set up")


class Bench:
    """An executor, and its messages without a wire."""

    def __init__(self) -> None:
        self.unhandled: list[tuple[str, str]] = []
        self.before_error: list[Callable[[], object]] = []
        self.executor = Executor("m", 2, "actor", SetUp(), self._unhandled, self.before_error, [])

    def _unhandled(self, context: Any, remote: Any) -> None:
        self.unhandled.append((context.endpoint, remote.type))

    def frame(self, kind: int, header: list[Any], value: Any) -> Frame:
        parts, lengths = codec.encode(value)
        header = [lengths if item is LENGTHS else item for item in header]
        (frame,) = FrameDecoder().receive_data(b"".join(split_frames(kind, header, parts)))
        return frame

    def serve(self, work: Execution | list[Any] | None) -> Frame | None:
        """Run, and return the answer as the caller reads it."""
        answer: list[Any] | None
        if not isinstance(work, Execution):
            answer = work
        elif work.is_async:
            answer = asyncio.run(self.executor.run_async(work))
        else:
            answer = self.executor.run(work)
        if answer is None:
            return None
        (frame,) = FrameDecoder().receive_data(b"".join(answer))
        return frame

    def init(self, *args: Any, setup: Callable[[], object] | None = None) -> Frame | None:
        frame = self.frame(INIT, [1, "Subject", VIEW, LENGTHS], (setup, Subject, args, {}, None))
        return self.serve(self.executor.decode_init(frame))

    def call(self, name: str, *args: Any, flags: int = 0) -> Frame | None:
        frame = self.frame(CALL, [7, name, VIEW, LENGTHS, flags], (args, {}))
        return self.serve(self.executor.decode_call(frame))


LENGTHS = object()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def value_of(frame: Frame | None) -> Any:
    assert frame is not None and frame.kind == RESULT and frame.header[0] == 7
    return None if frame.header[1] is None else codec.decode(frame.payload, frame.header[1])


def error_of(frame: Frame | None) -> tuple[str, str, str]:
    assert frame is not None and frame.kind == ERROR
    remote = error_from_wire(frame.header[1])
    return remote.type, remote.message, frame.header[3]


def test_init_then_calls(bench: Bench) -> None:
    answer = bench.init(setup=note_setup)
    assert answer is not None and (answer.kind, answer.header) == (RESULT, [1, None])
    assert bench.executor.state == "ready" and setups == ["set up"]
    assert value_of(bench.call("give", {"a": 1})) == {"a": 1}
    assert value_of(bench.call("give", None)) is None
    assert value_of(bench.call("rank")) == 2
    assert value_of(bench.call("give_async", [1])) == [1]
    assert current_call() is None


def test_a_call_before_init_is_refused(bench: Bench) -> None:
    assert error_of(bench.call("give", 1)) == (
        "RuntimeError",
        "the actor was never initialised (earlier, in __init__)",
        "init",
    )


def test_a_failed_init_is_told_to_every_later_call_and_can_be_repeated(bench: Bench) -> None:
    assert error_of(bench.init(True)) == ("ValueError", "no start", "")
    assert bench.executor.state == "failed"
    assert error_of(bench.call("give", 1)) == ("ValueError", "no start (earlier, in __init__)", "init")
    assert bench.call("give", 1, flags=NO_REPLY) is None
    bench.init()
    assert value_of(bench.call("give", 1)) == 1


def test_a_second_init_is_refused(bench: Bench) -> None:
    bench.init()
    assert error_of(bench.init())[2] == "exists"
    assert value_of(bench.call("give", 1)) == 1


@pytest.mark.parametrize("name", ["fail", "fail_async"])
@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
def test_whatever_is_raised_is_the_answer(bench: Bench, error: BaseException, name: str) -> None:
    bench.init()
    answer = bench.call(name, error)
    assert error_of(answer)[0].rpartition(".")[2] == type(error).__name__
    assert answer is not None and type(codec.decode(answer.payload, answer.header[2])) is type(error)
    assert current_call() is None


def test_where_the_endpoint_has_left_no_memory_for_its_answer_that_is_the_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.init()
    seen: list[BaseException] = []
    monkeypatch.setattr(hooks, "endpoint_error", [lambda _, error: seen.append(error)])
    with monkeypatch.context() as short:
        short.setattr("meshrt.actor.execute.pack_header", Mock(side_effect=MemoryError))
        assert error_of(bench.call("give", None))[0] == "MemoryError"
    assert [type(error) for error in seen] == [MemoryError], "who makes room then is asked"
    assert value_of(bench.call("give", None)) is None and current_call() is None


def test_without_a_caller_an_error_is_reported_and_a_value_dropped(bench: Bench) -> None:
    bench.init()
    assert bench.call("give", 1, flags=NO_REPLY) is None and not bench.unhandled
    assert bench.call("fail", ValueError("x"), flags=NO_REPLY) is None
    assert bench.call("missing", flags=NO_REPLY) is None
    assert bench.unhandled == [("fail", "ValueError"), ("missing", "AttributeError")]


def test_an_unknown_endpoint_and_arguments_that_do_not_load(bench: Bench) -> None:
    bench.init()
    assert error_of(bench.call("missing")) == ("AttributeError", "Subject has no endpoint 'missing'", "")
    frame = Frame(CALL, [7, "give", VIEW, [3], 0], b"\x80\x05.")
    assert bench.executor.state == "ready"
    assert error_of(bench.serve(bench.executor.decode_call(frame)))[0].endswith("Error")


def test_a_large_exception_goes_as_data_only(bench: Bench) -> None:
    bench.init()
    answer = bench.call("fail", ValueError("x" * (2 << 20)))
    assert answer is not None and answer.header[2] == [] and not answer.payload
    assert "characters left out" in error_of(answer)[1]


@pytest.mark.parametrize(
    "header", [None, [], [1], [1, "give", b"\xc1", [1], 0], [1, "give", b"\x90", [1], 0], "text", 5]
)
def test_a_header_that_is_none_is_a_protocol_error(bench: Bench, header: Any) -> None:
    bench.init()
    with pytest.raises(ProtocolError):
        bench.executor.decode_call(Frame(CALL, header, b""))
    with pytest.raises(ProtocolError):
        bench.executor.decode_init(Frame(INIT, header, b""))


def test_a_rank_that_is_started_again_may_be_sent_the_init_of_its_spawn_twice(bench: Bench) -> None:
    def kind(spawn: bytes) -> int:
        view = msgpack.packb([*msgpack.unpackb(VIEW)[:-1], spawn])
        frame = bench.frame(INIT, [1, "Subject", view, LENGTHS], (None, Subject, (), {}, None))
        answer = bench.serve(bench.executor.decode_init(frame))
        assert answer is not None
        return answer.kind

    assert [kind(spawn) for spawn in (b"one", b"one", b"two")] == [RESULT, RESULT, ERROR]
    answer = bench.call("give", 5)
    assert answer is not None and answer.kind == RESULT


def test_cleanup_runs_only_on_a_living_actor_and_its_error_is_reported(bench: Bench) -> None:
    assert bench.executor.cleanup_execution(None) is None
    bench.init()
    work = bench.executor.cleanup_execution(None)
    assert work is not None and bench.executor.run(work) is None
    assert bench.unhandled == [("__cleanup__", "OSError")]
    bench.executor.ended()
    assert bench.executor.cleanup_execution(None) is None and bench.executor.actor is None


@pytest.mark.parametrize("name", ["fail", "fail_async"])
def test_what_the_end_of_the_rank_interrupts_is_not_answered(bench: Bench, name: str) -> None:
    """The fate of the rank is the answer."""
    bench.init()
    assert bench.call(name, StopInterrupt("this rank is stopping")) is None
    assert not bench.unhandled and current_call() is None


@pytest.mark.parametrize("raised", [asyncio.CancelledError(), ValueError("instead")])
def test_what_was_cancelled_is_not_answered_unless_it_says_something_else(bench: Bench, raised: BaseException) -> None:
    bench.init()
    work = bench.executor.decode_call(bench.frame(CALL, [7, "fail_async", VIEW, LENGTHS, 0], ((raised,), {})))
    assert isinstance(work, Execution) and work.is_async
    work.interrupted = True
    answer = bench.serve(work)
    assert answer is None if isinstance(raised, asyncio.CancelledError) else error_of(answer)[0] == "ValueError"


def test_hooks_see_every_call_whatever_becomes_of_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    for hook in ("endpoint_enter", "endpoint_exit"):
        monkeypatch.setattr(hooks, hook, [lambda call, hook=hook: seen.append((hook, call.endpoint))])
    monkeypatch.setattr(hooks, "endpoint_error", [lambda call, error: seen.append((type(error).__name__, ""))])
    bench.init()
    seen.clear()
    for name in ("give", "give_async"):
        bench.call(name, 1)
        assert seen == [("endpoint_enter", name), ("endpoint_exit", name)]
        seen.clear()
    for name in ("fail", "fail_async"):
        bench.call(name, ValueError())
        assert seen == [("endpoint_enter", name), ("ValueError", ""), ("endpoint_exit", name)]
        seen.clear()


def test_what_is_loaded_for_errors_sees_those_that_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second actor fails when the first one has begun to load; the hook is there before either goes on."""
    seen: list[str] = []
    monkeypatch.setattr(hooks, "endpoint_error", [])
    both = threading.Barrier(2)
    loading = threading.Lock()

    def load() -> None:
        both.wait(20)
        with loading:
            if not hooks.endpoint_error:
                hooks.endpoint_error.append(lambda call, error: seen.append(str(error)))

    actors = {"a": Bench(), "b": Bench()}
    for bench in actors.values():
        bench.before_error.append(load)
        bench.init()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(bench.call, "fail", ValueError(name)) for name, bench in actors.items()]
        for call in calls:
            assert error_of(call.result(20))[0] == "ValueError"
    assert sorted(seen) == ["a", "b"]


class AsyncCleanup(Actor):
    @endpoint
    def nothing(self) -> None:
        pass

    async def __cleanup__(self, exc: object) -> None:
        pass


def test_an_async_cleanup_alone_wants_an_event_loop(bench: Bench) -> None:
    frame = bench.frame(INIT, [1, "AsyncCleanup", VIEW, LENGTHS], (None, AsyncCleanup, (), {}, None))
    bench.serve(bench.executor.decode_init(frame))
    assert bench.executor.is_async
    work = bench.executor.cleanup_execution(None)
    assert work is not None and work.is_async and bench.serve(work) is None and not bench.unhandled
