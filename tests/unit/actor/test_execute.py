"""One message on an actor: which answer it makes, in every state."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from meshrt.actor.actor import Actor
from meshrt.actor.context import current_call, current_rank
from meshrt.actor.endpoint import endpoint
from meshrt.actor.execute import Execution, Executor
from meshrt.errors import ProtocolError
from meshrt.selection import Extent, Shape
from meshrt.wire import codec
from meshrt.wire.frames import Frame, FrameDecoder, split_frames
from meshrt.wire.messages import CALL, ERROR, INIT, NO_REPLY, RESULT, error_from_wire

VIEW: bytes = msgpack.packb(Shape.from_extent(Extent(("n",), (4,))).to_wire())


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

    def __cleanup__(self, exc: object) -> None:
        raise OSError("not clean")


class Bench:
    """An executor, and its messages without a wire."""

    def __init__(self) -> None:
        self.unhandled: list[tuple[str, str]] = []
        self.setups: list[bytes] = []
        self.executor = Executor("m", 2, "actor", self.setups.append, self._unhandled)

    def _unhandled(self, context: Any, remote: Any) -> None:
        self.unhandled.append((context.endpoint, remote.type))

    def frame(self, kind: int, header: list[Any], value: Any) -> Frame:
        parts, lengths = codec.encode(value)
        header = [lengths if item is LENGTHS else item for item in header]
        (frame,) = FrameDecoder().receive_data(b"".join(split_frames(kind, header, parts)))
        return frame

    def serve(self, work: Execution | list[Any] | None) -> Frame | None:
        """Run, and return the answer as the caller reads it."""
        answer = self.executor.run(work) if isinstance(work, Execution) else work
        if answer is None:
            return None
        (frame,) = FrameDecoder().receive_data(b"".join(answer))
        return frame

    def init(self, *args: Any, setup: bytes | None = None) -> Frame | None:
        frame = self.frame(INIT, [1, "Subject", VIEW, LENGTHS], (setup, Subject, args, {}))
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
    answer = bench.init(setup=b"set up")
    assert answer is not None and (answer.kind, answer.header) == (RESULT, [1, None])
    assert bench.executor.state == "ready" and bench.setups == [b"set up"]
    assert value_of(bench.call("give", {"a": 1})) == {"a": 1}
    assert value_of(bench.call("give", None)) is None
    assert value_of(bench.call("rank")) == 2
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


def test_a_stopped_actor_refuses_and_can_begin_anew(bench: Bench) -> None:
    bench.init()
    bench.executor.stopped()
    assert error_of(bench.call("give", 1))[2] == "stopped"
    bench.init()
    assert value_of(bench.call("give", 1)) == 1


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_is_raised_is_the_answer(bench: Bench, error: BaseException) -> None:
    bench.init()
    answer = bench.call("fail", error)
    assert error_of(answer)[0] == type(error).__name__
    assert answer is not None and type(codec.decode(answer.payload, answer.header[2])) is type(error)
    assert current_call() is None


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


def test_cleanup_runs_only_on_a_living_actor_and_its_error_is_reported(bench: Bench) -> None:
    assert bench.executor.cleanup_execution() is None
    bench.init()
    work = bench.executor.cleanup_execution()
    assert work is not None and bench.executor.run(work) is None
    assert bench.unhandled == [("__cleanup__", "OSError")]
    bench.executor.stopped()
    assert bench.executor.cleanup_execution() is None
