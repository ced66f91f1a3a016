"""Channels and ports: order, fan-in, back-pressure, the ends of either side; endpoints that answer by a port."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshrt
from meshrt import (
    Actor,
    ActorError,
    ActorMesh,
    CallTimeout,
    Channel,
    MeshBusy,
    MeshStopped,
    Port,
    PortClosed,
    PortReceiver,
    ProcessDied,
    UsageError,
    current_rank,
    endpoint,
    proc_mesh,
    this_proc,
)
from meshrt.inspect.records import ReadStacks
from meshrt.mesh.future import _kept as kept_futures
from meshrt.mesh.ports import _senders as open_senders
from meshrt.transport.process import current_runtime
from tests.support.asking import Question, stacks_of
from tests.support.markers import marked_line
from tests.support.programs import run_python
from tests.support.waiting import wait_until

WAIT = 20


class Sender(Actor):
    def __init__(self) -> None:
        self.sent = 0
        self.kept: list[Any] = []

    @endpoint
    def numbers(self, port: Port[tuple[int, int]], count: int) -> None:
        for number in range(count):
            port.send((current_rank().rank, number))
            self.sent += 1

    @endpoint
    def send(self, port: Port[Any], value: Any) -> None:
        port.send(value)

    @endpoint
    def flood_when_done(self, other: ActorMesh[Sender], gate: str, port: Port[bytes]) -> None:
        """Send too much in a done-callback, which runs on the thread that answers everybody."""

        def flood(_future: object) -> None:
            try:
                while True:
                    port.send(b"x" * (1 << 20))
            except MeshBusy as error:
                self.kept.append(str(error))

        other.wait_for.call_one(gate).add_done_callback(flood)

    @endpoint
    def receive_when_done(self, other: ActorMesh[Sender], gate: str) -> None:
        """Wait for a message in a done-callback, on the thread that takes messages in."""
        _, receiver = Channel[int].open()
        call = other.wait_for.call_one(gate)
        call.add_done_callback(lambda _future: self.kept.append(str(receiver.recv().exception(WAIT))))

    @endpoint
    def wait_for(self, gate: str) -> None:
        wait_until(Path(gate).exists, WAIT)

    @endpoint
    def what_was_kept(self) -> list[Any]:
        return self.kept

    @endpoint
    def fail(self, port: Port[Any]) -> None:
        port.exception(LookupError(f"rank {current_rank().rank}"))

    @endpoint
    def how_many_senders(self) -> int:
        gc.collect()
        return len(open_senders)

    @endpoint
    def keep(self, port: Port[Any]) -> None:
        self.kept.append(port)

    @endpoint
    def send_by_kept(self, value: Any) -> None:
        self.kept[-1].send(value)

    @endpoint(urgent=True)
    def count(self) -> int:
        return self.sent

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Receiving(Actor):
    """Opens channels on its rank."""

    @endpoint
    def open(self) -> dict[str, Port[Any]]:
        port, self.receiver = Channel[Any].open()
        return {"port": port}

    @endpoint
    def take(self) -> Any:
        return self.receiver.recv().get(WAIT)

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def take_many(self, count: int) -> list[Any]:
        return [self.receiver.recv().get(WAIT) for _ in range(count)]

    @endpoint
    def take_when_sent(self, sender: ActorMesh[Sender], port: Port[tuple[int, int]], count: int) -> None:
        sender.numbers.call_one(port, count).get()
        self.receiver.recv().get()

    @endpoint
    def close(self) -> None:
        self.receiver.close()


def waits() -> list[str]:
    """Return who waits for whom, in words."""
    return [wait.text for wait in stacks_of(Question(ReadStacks())).answer().waits]


class AsyncSender(Actor):
    @endpoint
    async def flood(self, port: Port[bytes], size: int) -> str:
        try:
            for _ in range(1000):
                port.send(b"x" * size)
        except MeshBusy as error:
            return str(error)
        return "never refused"

    @endpoint
    async def fill(self, port: Port[bytes]) -> None:
        while True:
            await port.wait_ready()
            port.send(b"x" * 1000)


@pytest.fixture
def senders() -> ActorMesh[Sender]:
    return proc_mesh(n=3).spawn("sender", Sender).get(WAIT)


def received(receiver: PortReceiver[Any], count: int) -> list[Any]:
    return [receiver.recv().get(WAIT) for _ in range(count)]


def test_many_ranks_send_to_one_receiver_each_in_order(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[tuple[int, int]].open()
    senders.numbers.broadcast(port, 500)
    found = received(receiver, 1500)
    for rank in range(3):
        assert [number for sender, number in found if sender == rank] == list(range(500))


def test_values_are_copies_also_large_ones(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[Any].open()
    array = np.arange(200_000)
    senders.slice(n=0).send.broadcast(port, array)
    assert received(receiver, 1)[0].tolist() == array.tolist()
    values = [1]
    port.send(values)
    values.append(2)
    assert received(receiver, 1) == [[1]]


def test_a_port_may_be_anywhere_and_outlives_its_call(senders: ActorMesh[Sender]) -> None:
    receiving = proc_mesh(n=1).spawn("receiving", Receiving)
    port = receiving.open.call_one().get(WAIT)["port"]
    port.send("from the script")
    assert receiving.take.call_one().get(WAIT) == "from the script"
    senders.keep.call(port).get(WAIT)
    senders.slice(n=2).send_by_kept.call_one("later").get(WAIT)
    assert receiving.take.call_one().get(WAIT) == "later"
    assert pickle.loads(pickle.dumps(port)) == port


def test_an_exception_is_raised_where_it_is_received(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[int].open()
    senders.slice(n=1).fail.call_one(port).get(WAIT)
    with pytest.raises(LookupError, match="rank 0"):
        receiver.recv().get(WAIT)
    error = ValueError()
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    port.exception(error)
    with pytest.raises(Exception, match="ValueError"):
        receiver.recv().get(WAIT)


def test_an_exception_that_nobody_receives_is_said() -> None:
    code = """
from meshrt import *
class Actors(Actor):
    @endpoint
    def open(self):
        port, self.receiver = Channel.open()
        return port
    @endpoint
    def fail(self, port, text):
        port.exception(ValueError(text))
    @endpoint
    def arrived(self):
        return len(self.receiver._inbox.unread())
actors = proc_mesh(n=2).spawn("actors", Actors)
closed, receiver = Channel.open()
actors.fail.call(closed, "closed").get()
while len(receiver._inbox.unread()) < 2:
    pass
receiver.close()
dropped, receiver = Channel.open()
actors.slice(n=0).fail.call(dropped, "dropped").get()
del receiver
left, receiver = Channel.open()
read, other = Channel.open()
for port in (left, read):
    actors.slice(n=1).fail.call(port, "left").get()
try:
    other.recv().get()
except ValueError:
    pass
in_rank = actors.slice(n=0).open.call_one().get()
actors.slice(n=1).fail.call(in_rank, "in a rank").get()
while not actors.slice(n=0).arrived.call_one().get():
    pass
"""
    done = run_python("-c", code)
    what = "nobody has received the exception that port.exception() sent to "
    said = [line.partition(what)[2] for line in done.stderr.splitlines() if what in line]
    assert done.returncode == 0 and len(said) == len({*said}), done.stderr
    for text in ("closed, and 1 more", "left", "in a rank"):
        (line,) = [each for each in said if each.endswith(f"ValueError: {text}")]
        assert line.startswith("the channel opened at <string>:")
    assert len(said) == 4 and any(each.endswith("ValueError: dropped") for each in said), said


def test_ranked_messages_say_who_has_sent_them(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[str].open_ranked()
    senders.send.call(port, "x").get(WAIT)
    assert sorted(received(receiver, 3)) == [(0, "x"), (1, "x"), (2, "x")]
    with pytest.raises(UsageError, match="use it inside an endpoint"):
        port.send("y")


def test_a_time_out_says_which_port_it_is_of_and_what_has_come(senders: ActorMesh[Sender]) -> None:
    opened = f"channel opened at {__file__}:{marked_line(__file__, 'opened')}"
    port, receiver = Channel[int].open()  # @opened

    def time_out() -> str:
        with pytest.raises(CallTimeout) as caught:
            receiver.recv().get(timeout=0)
        return str(caught.value)

    said = time_out()
    assert said.startswith(f"port.recv() of the {opened}: not done within 0 s; no message was sent to it: ")
    assert "the port was not passed to another process; you can wait again" in said
    senders.send.call(port, 1).get(WAIT)
    assert received(receiver, 3) == [1, 1, 1]
    assert "; 3 messages were received from 3 other processes, the last one " in time_out()

    async def awaits() -> None:
        async with asyncio.timeout(0):
            await receiver.recv()

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(awaits())
    said = "".join(traceback.format_exception(caught.value))
    assert f"port.recv() of the {opened}: 3 messages were received" in said

    port, receiver = Channel[int].open()
    senders.slice(n=0).keep.call_one(port).get(WAIT)
    assert "; no message was sent to it; you can wait again" in time_out()


@pytest.mark.slow
def test_a_time_out_loses_no_message(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[int].open()
    with pytest.raises(CallTimeout, match=r"port.recv\(\) of the channel opened at .*: not done within 0.01 s"):
        receiver.recv().get(0.01)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await receiver.recv()

    asyncio.run(cancelled())
    gc.collect()

    async def receives_again() -> int:
        try:
            async with asyncio.timeout(0.01):
                return await receiver.recv()
        except TimeoutError:
            port.send(0)  # while the error, whose traceback leads to the wait, is at hand
            return await receiver.recv()

    assert asyncio.run(asyncio.wait_for(receives_again(), WAIT)) == 0
    kept = receiver.recv()
    senders.slice(n=0).send.call_one(port, 1).get(WAIT)
    senders.slice(n=0).send.call_one(port, 2).get(WAIT)
    assert received(receiver, 1) == [2]
    assert kept.get(WAIT) == 1
    called: list[int] = []
    receiver.recv().add_done_callback(lambda future: called.append(future.get()))
    gc.collect()
    port.send(3)
    wait_until(lambda: called == [3], WAIT)


def test_a_message_that_comes_as_its_task_is_cancelled_is_not_lost(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[int].open()

    async def main() -> list[int]:
        got: list[int] = []
        for number in range(100):
            waits = asyncio.create_task(_receive(receiver, got))
            await asyncio.sleep(0)
            sender = threading.Thread(target=port.send, args=(number,))
            sender.start()
            sender.join()  # it is there, and the task has not seen it
            waits.cancel()
            await asyncio.wait([waits])
        return got + [await receiver.recv() for _ in range(100 - len(got))]

    assert asyncio.run(asyncio.wait_for(main(), WAIT)) == list(range(100))

    async def expires() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await receiver.recv()
        port.send(7)
        assert await receiver.recv() == 7

    asyncio.run(asyncio.wait_for(expires(), WAIT))


async def _receive(receiver: PortReceiver[int], got: list[int]) -> None:
    got.append(await receiver.recv())


@pytest.mark.slow
@pytest.mark.parametrize("on_loop", [False, True])
def test_a_receiver_is_iterated_until_it_is_closed(senders: ActorMesh[Sender], on_loop: bool) -> None:
    port, receiver = Channel[tuple[int, int]].open()
    senders.slice(n=0).numbers.broadcast(port, 3)
    seen: list[int] = []

    def note(number: int) -> None:
        seen.append(number)
        if number == 2:
            receiver.close()

    async def collect() -> None:
        async for _, number in receiver:
            note(number)

    if on_loop:
        asyncio.run(collect())
    else:
        for _, number in receiver:
            note(number)
    assert seen == [0, 1, 2]


def test_one_message_closes_a_channel_that_is_for_one() -> None:
    port, receiver = Channel[int].open(once=True)
    port.send(1)
    with pytest.raises(PortClosed, match="the receiver is closed"):
        port.send(2)
    assert receiver.recv().get(WAIT) == 1
    with pytest.raises(PortClosed):
        receiver.recv().get(WAIT)


# -- back-pressure


@pytest.mark.slow
def test_a_thread_waits_for_a_receiver_that_does_not_take(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[tuple[int, int]].open()
    one = senders.slice(n=0)
    done = one.numbers.call_one(port, 5000)
    assert isinstance(done.exception(0.3), CallTimeout)
    assert [number for _, number in received(receiver, 5000)] == list(range(5000))
    done.get(WAIT)
    assert one.count.call_one().get(WAIT) == 5000


def _say_waits_soon() -> None:
    meshrt.mesh.ports._SLOW = 0.05


def test_a_long_wait_in_send_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    port, receiver = Channel[tuple[int, int]].open()
    mesh = proc_mesh(n=1, setup=_say_waits_soon)
    sender, receiving = mesh.spawn("sender", Sender), mesh.spawn("receiving", Receiving)
    sender.numbers.broadcast(port, 1000)
    wait_until(lambda: "port.send() has waited for 0.05 s: the script has not received" in caplog.text, WAIT)
    assert len(received(receiver, 1000)) == 1000
    monkeypatch.setattr("meshrt.mesh.ports._SLOW", 0.05)
    to_rank = receiving.open.call_one().get(WAIT)["port"]
    sending = threading.Thread(target=lambda: deque(map(to_rank.send, range(1000)), 0))
    sending.start()
    wait_until(lambda: "has waited for 0.05 s: receiving rank 0 has not received" in caplog.text, WAIT)
    assert receiving.take_many.call_one(1000).get(WAIT) == list(range(1000))
    sending.join(WAIT)
    assert caplog.text.count("has waited for") == 2


def test_an_event_loop_is_refused_when_too_much_waits() -> None:
    sender = proc_mesh(n=1).spawn("sender", AsyncSender)
    port, receiver = Channel[bytes].open()
    assert "the limit for a caller that may not wait is 64.00 MiB" in sender.flood.call_one(port, 1 << 20).get(60)
    assert len(receiver.recv().get(WAIT)) == 1 << 20


def test_a_deadlock_of_a_call_and_a_port_is_a_cycle() -> None:
    mesh = proc_mesh(n=2)
    sender, receiving = mesh.spawn("sender", Sender), mesh.spawn("receiving", Receiving).slice(n=0)
    port = receiving.open.call_one().get(WAIT)["port"]
    called = receiving.take_when_sent.call_one(sender.slice(n=1), port, 100_000)
    cycle = (
        "receiving rank 0 waits for sender.numbers() of rank 1, which waits for receiving rank 0 to receive messages "
        "from its port: a cycle, for "
    )
    wait_until(lambda: any(line.startswith(cycle) for line in waits()), WAIT)
    mesh.stop(grace=0.1)
    assert isinstance(called.exception(WAIT), (ActorError, MeshStopped))


def test_a_rank_that_waits_for_a_message_is_seen() -> None:
    mesh = proc_mesh(n=1)
    receiving = mesh.spawn("receiving", Receiving)
    port = receiving.open.call_one().get(WAIT)["port"]
    called = receiving.take_many.call_one(1)
    wait_until(lambda: waits() == ["rank 0 waits for a message to a port"], WAIT)
    port.send(7)
    assert called.get(WAIT) == [7]


def test_a_task_waits_for_a_receiver_that_does_not_take() -> None:
    sender = proc_mesh(n=1).spawn("sender", AsyncSender)
    port, receiver = Channel[bytes].open()
    filling = sender.fill.call_one(port)
    line = "rank 0 waits for the script to receive messages from its port"
    wait_until(lambda: waits() == [line], WAIT)
    for _ in range(1000):  # several times of what may be under way
        receiver.recv().get(WAIT)
    wait_until(lambda: waits() == [line], WAIT)
    receiver.close()
    assert isinstance(filling.exception(WAIT), ActorError) and "the receiver is closed" in str(filling.exception())


def test_a_done_callback_is_refused_and_does_not_block_its_rank(tmp_path: Path) -> None:
    senders = proc_mesh(n=2).spawn("sender", Sender)
    port, receiver = Channel[bytes].open()
    one = senders.slice(n=0)
    one.flood_when_done.call_one(senders.slice(n=1), str(tmp_path / "gate"), port).get(WAIT)
    (tmp_path / "gate").touch()
    wait_until(lambda: one.what_was_kept.call_one().get(WAIT), WAIT)
    assert "write `await port.wait_ready()`" in one.what_was_kept.call_one().get(WAIT)[0]
    assert len(receiver.recv().get(WAIT)) == 1 << 20


def test_a_rank_that_sends_when_the_program_ends_has_not_failed() -> None:
    code = """
from meshrt import *
class Sender(Actor):
    @endpoint
    def stream(self, port):
        while True:
            port.send(1)
class Sink(Actor):
    @endpoint
    def open(self):
        port, self.receiver = Channel.open()
        return port
    @endpoint
    def receive(self, count):
        for _ in range(count):
            self.receiver.recv().get()
senders = proc_mesh(n=2).spawn("sender", Sender)
sink = proc_mesh().spawn("sink", Sink)
senders.stream.broadcast(sink.open.call_one().get())
sink.receive.call_one(50).get()
"""
    done = run_python("-c", code)
    assert done.returncode == 0 and "PortClosed" not in done.stderr


def test_a_message_is_not_waited_for_by_the_thread_that_is_to_bring_it(tmp_path: Path) -> None:
    senders = proc_mesh(n=2).spawn("sender", Sender)
    one = senders.slice(n=0)
    one.receive_when_done.call_one(senders.slice(n=1), str(tmp_path / "gate")).get(WAIT)
    (tmp_path / "gate").touch()
    wait_until(lambda: one.what_was_kept.call_one().get(WAIT), WAIT)
    assert "cannot wait in a done-callback" in one.what_was_kept.call_one().get(WAIT)[0]


def test_a_process_that_sends_to_itself_never_waits() -> None:
    port, receiver = Channel[Any].open()
    for number in range(1000):
        port.send(number)
    assert received(receiver, 1000) == list(range(1000))
    for _ in range(63):
        port.send(b"x" * (1 << 20))
    with pytest.raises(UsageError, match="this process has sent 64 MiB to its own port"):
        port.send(b"x" * (1 << 20))
    assert len(received(receiver, 1)[0]) == 1 << 20
    port.send(b"x" * (1 << 20))


# -- ends


@pytest.mark.slow
def test_senders_are_told_that_the_receiver_is_closed(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[int].open()
    senders.send.call(port, 1).get(WAIT)
    waits = receiver  # it is closed when nothing uses it any more
    received(waits, 3)
    waiting = receiver.recv()
    del waits, receiver
    gc.collect()
    with pytest.raises(PortClosed, match=r"port.recv\(\): the receiver is closed"):
        waiting.get(WAIT)

    def refused() -> bool:
        errors = [senders.slice(n=rank).send.call_one(port, 2).exception(WAIT) for rank in range(3)]
        return all(isinstance(error, ActorError) and isinstance(error.exception, PortClosed) for error in errors)

    wait_until(refused, WAIT)
    with pytest.raises(PortClosed):
        port.send(3)


def test_a_sender_that_waits_is_told_of_the_end_of_the_receiver(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[Any].open()
    blocked = senders.slice(n=0).numbers.call_one(port, 5000)
    assert received(receiver, 1) == [(0, 0)]
    receiver.close()
    with pytest.raises(ActorError, match="the receiver is closed"):
        blocked.get(WAIT)


def test_the_death_of_the_receivers_process(senders: ActorMesh[Sender], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)  # get() raises what befell its own call
    receiving = proc_mesh(n=1).spawn("receiving", Receiving)
    port = receiving.open.call_one().get(WAIT)["port"]
    port.send(1)
    blocked = senders.slice(n=0).numbers.call_one(port, 5000)
    assert receiving.take.call_one().get(WAIT) in (1, (0, 0))
    os.kill(receiving.pid.call_one().get(WAIT), signal.SIGKILL)
    with pytest.raises(ActorError, match="was killed by SIGKILL"):
        blocked.get(WAIT)

    def told() -> bool:
        try:
            port.send(2)
        except ProcessDied as error:
            return "port.send()" in str(error) or error.rank == 0
        return False

    wait_until(told, WAIT)
    assert isinstance(receiving.take.call_one().exception(WAIT), ProcessDied)


def test_the_death_of_a_sender_is_raised_where_its_message_is_waited_for(senders: ActorMesh[Sender]) -> None:
    _port, receiver = Channel[int].open()
    pid = senders.slice(n=1).pid.call_one().get(WAIT)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessDied, match="SIGKILL"):
        receiver.recv().get(WAIT)


def test_what_cannot_be_sent_is_refused() -> None:
    port, receiver = Channel[Any].open()
    with pytest.raises(TypeError, match=r"port.send\(\).*lock"):
        port.send(threading.Lock())
    with pytest.raises(TypeError, match="a receiver cannot be sent to another process"):
        pickle.dumps(receiver)
    other: Port[int] = Port("1", "m", 0, this_proc()._address, "another", ("", -1, ""), False)
    with pytest.raises(UsageError, match="this port belongs to another program"):
        other.send(1)


# -- what senders and receivers may do


def test_a_value_that_cannot_be_sent_leaves_the_sender_as_it_was(senders: ActorMesh[Sender]) -> None:
    receiving = proc_mesh(n=1).spawn("receiving", Receiving)
    port = receiving.open.call_one().get(WAIT)["port"]
    for _ in range(10):
        with pytest.raises(TypeError, match="lock"):
            port.send(threading.Lock())
    port.send("fine")
    assert receiving.take.call_one().get(WAIT) == "fine"
    receiving.close.call_one().get(WAIT)

    def told() -> bool:
        try:
            port.send("late")
        except PortClosed:
            return True
        return False

    wait_until(told, WAIT)


def test_a_callback_may_send_to_the_port_that_its_thread_sends_to(senders: ActorMesh[Sender]) -> None:
    """Sending reads what has arrived, and runs callbacks."""
    receiving = proc_mesh(n=1).spawn("receiving", Receiving)
    port = receiving.open.call_one().get(WAIT)["port"]
    for _ in range(50):
        senders.pid.call().add_done_callback(lambda _future: port.send("called back"))
    for number in range(100):
        port.send(number)
    assert set(receiving.take_many.call_one(150).get(WAIT)) == {*range(100), "called back"}


def test_an_event_loop_does_not_wait_for_a_thread_that_does() -> None:
    receiving = proc_mesh(n=1).spawn("receiving", Receiving)
    port = receiving.open.call_one().get(WAIT)["port"]
    blocked = threading.Thread(target=lambda: deque(map(port.send, range(1000)), maxlen=0))
    blocked.start()
    waits = current_runtime().driver.waits
    wait_until(lambda: blocked.ident in waits.entries, WAIT)

    async def main() -> None:
        for _ in range(10):
            port.send("from the loop")

    asyncio.run(main())
    assert blocked.is_alive()
    assert receiving.take_many.call_one(1010).get(WAIT).count("from the loop") == 10
    blocked.join(WAIT)


def test_the_handler_of_a_time_out_may_receive() -> None:
    """The traceback of the error that is handled leads to the wait."""
    port, receiver = Channel[int].open()
    with pytest.raises(CallTimeout) as caught:
        receiver.recv().get(0.01)
    assert caught.value.__traceback__ is not None
    port.send(1)
    assert receiver.recv().get(WAIT) == 1


def test_callbacks_on_messages_that_are_there_keep_nothing() -> None:
    port, receiver = Channel[int].open()
    seen: list[int] = []
    for number in range(10):
        port.send(number)
        receiver.recv().add_done_callback(lambda future: seen.append(future.get(0)))
    assert seen == list(range(10)) and not kept_futures


def test_a_port_that_comes_with_each_call_has_one_sender(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[int].open()
    for number in range(100):
        senders.slice(n=0).send.call_one(port, number).get(WAIT)
    assert received(receiver, 100) == list(range(100))
    assert senders.slice(n=0).how_many_senders.call_one().get(WAIT) == 1
    receiver.close()
    wait_until(lambda: senders.slice(n=0).send.call_one(port, 0).exception(WAIT) is not None, WAIT)
