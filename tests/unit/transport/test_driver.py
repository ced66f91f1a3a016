"""The driver, with ranks that are served by hand: links, order, suspects and deaths, and who drives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshrt.transport import disconnects
from meshrt.transport.dialling import DIALS
from meshrt.transport.driver import Driver
from meshrt.transport.fate import Fate
from meshrt.transport.pending import Pending
from meshrt.wire.handshake import ROLE_DATA, Identity, ServerHandshake
from meshrt.wire.messages import RESULT, STATE
from tests.support.descriptors import next_is
from tests.support.waiting import wait_until
from tests.unit.transport.fake_rank import KEY, SECRET, Answers, FakeRank, FakeTree, call, open_link, pump

DIED = Fate("died", signal=9)
RESTARTS = Fate("died", signal=9, restarts=True)


Listen = Callable[..., FakeRank]


def asked(driver: Driver, listen: Listen) -> tuple[FakeRank, Any, Answers]:
    """Return a rank that one call was sent to, the link to it, and who waits for the answer."""
    rank = listen()
    out = open_link(driver, rank)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    return rank, out, receiver


def test_calls_are_sent_in_order_and_answers_find_their_call(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    receivers = [Answers() for _ in range(3)]
    for index, receiver in enumerate(receivers):
        driver.send(out, call(index + 1), index + 1, receiver, index)
    rank.serve()
    assert [frame.header for frame in rank.frames] == [[1], [2], [3]]
    for call_id in (3, 1, 2):
        rank.answer(call_id)
    driver.poll_nowait()
    assert [[position for position, _ in receiver.delivered] for receiver in receivers] == [[0], [1], [2]]
    assert rank.handshake.endpoint == "m/0/actor"


def test_answers_that_nobody_waits_for_are_looked_for(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank, out, receiver = asked(driver, listen)
    driver.send(out, call(2), 2, receiver, 0)
    (look,) = tree.later
    tree.later.clear()
    look()
    assert len(tree.later) == 1, "and again, as long as there are some to come"

    def has_come() -> bool:
        rank.serve()
        return len(rank.frames) == 2

    wait_until(has_come)
    rank.answer(1)
    rank.answer(2)
    tree.later.pop()()
    assert len(receiver.delivered) == 2 and not tree.later


def test_what_is_sent_before_the_link_is_open_goes_first(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank = listen()
    out = driver.link_to(KEY, rank.path)
    for call_id in (1, 2):
        driver.send(out, call(call_id), call_id, Answers(), 0)
    assert tree.background and driver.queues.unwritten("m") and not driver.queues.unwritten("other")
    pump(driver, rank, lambda: not driver.queues.unwritten("m"))
    driver.send(out, call(3), 3, Answers(), 0)
    pump(driver, rank, lambda: len(rank.frames) == 3)
    assert [frame.header for frame in rank.frames] == [[1], [2], [3]]
    assert not tree.background


def test_a_rank_that_is_not_born_yet_is_connected_to_later(
    driver: Driver, listen: Listen, tree: FakeTree, tmp_path: Path
) -> None:
    receiver = Answers()
    out = driver.link_to(KEY, str(tmp_path / "0"))
    driver.send(out, call(1), 1, receiver, 0)
    assert len(tree.births) == 1
    rank = listen()
    tree.bear()
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    assert driver.wait(receiver, 10)


def test_one_link_per_rank_and_actor(driver: Driver, listen: Listen) -> None:
    rank = listen()
    assert driver.link_to(KEY, rank.path) is driver.link_to(KEY, rank.path)
    assert driver.link_to(("m", 0, "other"), rank.path) is not driver.link_to(KEY, rank.path)


@pytest.mark.parametrize("said", [0, 1])
def test_a_rank_that_hangs_up_before_it_lets_a_caller_in_is_dialled_again(
    driver: Driver, listen: Listen, said: int
) -> None:
    """It waits only so long for a caller that has no time, who has not sent anything then."""
    rank = listen()
    receiver = Answers()
    out = driver.link_to(KEY, rank.path)
    driver.send(out, call(1, b"payload"), 1, receiver, 0)
    for _ in range(3):
        sock, _ = rank.listener.accept()
        if said:
            sock.sendall(ServerHandshake(SECRET, ROLE_DATA).receive_data(sock.recv(256)))
            driver.poll_nowait()
            assert len(sock.recv(256)) == 32, "the proof, and nothing behind it"
        sock.close()
        driver.poll_nowait()
    assert not receiver.finished
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    pump(driver, rank, lambda: receiver.finished)
    assert len(rank.frames) == 1 and not receiver.lost


def test_a_rank_that_always_hangs_up_is_a_lost_link(
    driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank = listen()
    receiver = Answers()
    out = driver.link_to(KEY, rank.path)
    driver.send(out, call(1), 1, receiver, 0)
    dialled = 0

    def hung_up() -> bool:
        nonlocal dialled
        with contextlib.suppress(BlockingIOError):
            rank.listener.accept()[0].close()
            dialled += 1
        driver.poll_nowait()
        return receiver.finished

    wait_until(hung_up)
    assert receiver.lost == [(0, "link", False)] and dialled == DIALS


def test_the_end_of_a_rank_leaves_alone_who_has_the_descriptor_that_was_its(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, another = listen(), listen("1")
    out = driver.link_to(KEY, rank.path)
    number = out.link.fileno() if out.link is not None else -1
    sock, _ = rank.listener.accept()
    Path(rank.path).unlink()
    sock.close()
    driver.poll_nowait()  # it is dialled again, in vain
    with next_is(number):
        other = driver.link_to(("m", 1, "actor"), another.path)
    assert other.link is not None and other.link.fileno() == number
    tree.kill(driver, 0, DIED)
    receiver = Answers()
    driver.send(other, call(1), 1, receiver, 0)
    pump(driver, another, lambda: another.frames)
    another.answer(1)
    pump(driver, another, lambda: receiver.finished)
    assert receiver.delivered and not receiver.lost


def test_a_rank_without_the_secret_gets_nothing(
    driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank = listen(secret=b"x" * 32)
    receiver = Answers()
    out = driver.link_to(KEY, rank.path)
    driver.send(out, call(1, b"secret words"), 1, receiver, 0)
    pump(driver, rank, lambda: receiver.finished)
    assert receiver.lost == [(0, "link", False)]
    assert rank.frames == [] and not rank.handshake.done


def test_what_a_rank_wrote_before_it_died_arrives_before_its_death(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank = listen()
    out = open_link(driver, rank)
    answered, failed = Answers(), Answers()
    driver.send(out, call(1), 1, answered, 0)
    driver.send(out, call(2), 2, failed, 0)
    rank.serve()
    rank.answer(1)
    rank.close()
    tree.kill(driver, 0, DIED)
    assert answered.finished and not answered.lost
    assert failed.lost == [(0, "died", True)]


def test_all_that_a_rank_wrote_arrives_however_often_it_takes_to_read_it(
    driver: Driver, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshrt.transport.link._RECV", 100)
    rank = listen()
    out = open_link(driver, rank)
    answers = Answers(50)
    for call_id in range(50):
        driver.send(out, call(call_id), call_id, answers, call_id)
    rank.serve()
    for call_id in range(50):
        rank.answer(call_id)
    tree.kill(driver, 0, DIED)
    assert [position for position, _ in answers.delivered] == list(range(50)) and not answers.lost


def test_ranks_that_die_together_are_lost_at_once(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    """Whoever reads meanwhile: the first loss is what a call fails by, and it names all of them."""
    ranks = [listen("0"), listen("1")]
    outs = [driver.link_to(("m", number, "a"), rank.path) for number, rank in enumerate(ranks)]
    for rank in ranks:
        pump(driver, rank, lambda: rank.handshake.done)  # noqa: B023 - used at once
    answers = Answers(2)
    for position, out in enumerate(outs):
        driver.send(out, call(1), 1, answers, position)
    with driver.lost.together():
        tree.kill(driver, 0, DIED)
        driver.poll_nowait()
        assert not answers.lost
        tree.kill(driver, 1, DIED)
        assert not answers.lost
    assert sorted(answers.lost) == [(0, "died", True), (1, "died", True)] and answers.told == 1


def test_a_death_without_end_of_stream_is_enough(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    """A grandchild may hold the socket open."""
    _rank, _, receiver = asked(driver, listen)
    tree.kill(driver, 0, DIED)
    assert receiver.lost == [(0, "died", True)]


@pytest.mark.row("N1")
def test_an_end_of_stream_is_a_suspicion_until_the_fate_is_known(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, _, receiver = asked(driver, listen)
    rank.serve()
    rank.close()
    assert not driver.wait(receiver, 0.05) and not receiver.lost
    tree.kill(driver, 0, DIED)
    assert receiver.lost == [(0, "died", True)]


@pytest.mark.row("N1")
def test_a_suspicion_without_a_fate_becomes_a_lost_link(
    driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank, out, receiver = asked(driver, listen)
    rank.serve()
    rank.close()
    assert driver.wait(receiver, 10)
    assert receiver.lost == [(0, "link", True)]
    late = Answers()
    driver.send(out, call(2), 2, late, 0)
    assert late.lost == [(0, "link", False)]


@pytest.mark.row("N5")
def test_garbage_from_a_rank_is_a_lost_link(driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank, _, receiver = asked(driver, listen)
    assert rank.sock is not None
    rank.sock.sendall(b"\xff" * 100)
    assert driver.wait(receiver, 10)
    assert receiver.lost == [(0, "link", True)]


@pytest.mark.row("N5")
def test_an_answer_to_nobody_is_dropped(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    rank.answer(99)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    rank.answer(1)
    assert driver.wait(receiver, 10)


def test_a_time_out_and_a_hold(driver: Driver) -> None:
    receiver = Answers()
    assert not driver.wait(receiver, 0)
    assert not driver.wait(receiver, 0.01)
    driver.clock.hold(True)
    waiting = threading.Thread(target=driver.wait, args=(receiver, 0.01))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()  # the clock of time-outs stands still
    driver.clock.hold(False)
    driver.wake()
    waiting.join(10)
    assert not waiting.is_alive()


def test_one_thread_leads_and_the_others_follow(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    pendings = [Pending(driver) for _ in range(4)]

    class Finisher(Answers):
        def __init__(self, pending: Pending) -> None:
            super().__init__()
            self.pending = pending

        def deliver(self, position: int, frame: Any) -> None:
            self.pending.finish()

    for call_id, pending in enumerate(pendings):
        driver.send(out, call(call_id), call_id, Finisher(pending), 0)
    threads = [threading.Thread(target=driver.wait, args=(pending, 20)) for pending in pendings]
    for thread in threads:
        thread.start()
    wait_until(lambda: driver.followers == 3, 10, "three follow")
    for call_id in (2, 0, 3, 1):  # whoever leads completes the calls of the others
        rank.answer(call_id)
        wait_until(lambda: pendings[call_id].finished)  # noqa: B023 - used at once
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_callback_asks_for_the_background_until_it_has_run(driver: Driver, tree: FakeTree) -> None:
    pending = Pending(driver)
    called: list[int] = []
    pending.when_done(lambda: called.append(1), background=True)
    seen = [(list(called), tree.background)]
    for _ in range(2):
        pending.finish()
        seen.append((list(called), tree.background))
    pending.when_done(lambda: called.append(2), background=True)
    seen.append((list(called), tree.background))
    assert seen == [([], True), ([1], False), ([1], False), ([1, 2], False)]


def test_a_slow_rank_makes_nobody_else_wait_and_gets_everything(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    payload = bytes(range(256)) * 8192
    for call_id in range(4):
        driver.send(out, call(call_id, payload), call_id, None, 0)
    assert out.waiting_bytes() > 0 and driver.queues.unwritten("m")
    pump(driver, rank, lambda: len(rank.frames) == 4)
    assert all(bytes(frame.payload) == payload for frame in rank.frames) and not driver.queues.unwritten("m")


def test_an_action_waits_until_everything_is_written(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank = listen()
    left: list[float] = []
    driver.queues.when_written("m", 9.0, left.append)
    assert left == [9.0]
    out = driver.link_to(KEY, rank.path)
    driver.send(out, call(1, bytes(4 << 20)), 1, None, 0)
    driver.queues.when_written("m", 9.0, left.append)
    driver.queues.when_written("other", 5.0, left.append)
    driver.queues.when_written("m", 0.0, left.append)
    assert left == [9.0, 5.0, 0.0]
    pump(driver, rank, lambda: rank.frames)
    assert len(left) == 4 and 0 < left[3] < 9
    for timer in tree.later:
        timer()
    assert len(left) == 4


def test_an_action_does_not_wait_for_ever(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    out = driver.link_to(KEY, listen().path)
    driver.send(out, call(1), 1, None, 0)
    left: list[float] = []
    driver.queues.when_written("m", 1e-9, left.append)
    assert not left and driver.queues.unwritten("m")
    tree.later.pop()()
    driver.poll_nowait()
    assert left == [0.0]


def test_an_action_does_not_wait_for_the_dead(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    out = driver.link_to(KEY, listen().path)
    driver.send(out, call(1), 1, None, 0)
    left: list[float] = []
    driver.queues.when_written("m", 9.0, left.append)
    tree.kill(driver, 0, DIED)
    assert len(left) == 1


def test_an_interjection_runs_on_the_main_thread_while_it_waits(driver: Driver) -> None:
    assert not driver.interject(lambda _: None)
    pending = Pending(driver)
    ran: list[object] = []

    def interjected(waited: object) -> None:
        ran.append((waited is pending, threading.current_thread() is threading.main_thread()))
        pending.finish()

    def ask() -> None:
        wait_until(lambda: driver.interject(interjected))

    asking = threading.Thread(target=ask)
    asking.start()
    assert driver.wait(pending, 10)
    asking.join(10)
    assert ran == [(True, True)] and not driver.interject(lambda _: None)


def test_a_socket_of_another_kind_in_the_place_of_a_rank(driver: Driver, tmp_path: Path, tree: FakeTree) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "0"))
        receiver = Answers()
        out = driver.link_to(KEY, str(tmp_path / "0"))
        driver.send(out, call(1), 1, receiver, 0)
        tree.kill(driver, 0, Fate("unborn", hint="no luck"))
        assert receiver.lost == [(0, "unborn", False)]


# ---- links to stopped actors


def test_a_link_to_a_stopped_actor_is_closed_and_opened_again_by_the_next_call(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    for call_id in (1, 2):
        receiver = Answers()
        driver.send(out, call(call_id), call_id, receiver, 0)
        pump(driver, rank, lambda: rank.frames)
        rank.send(STATE, [0, True])
        rank.answer(rank.frames.pop().header[0])
        pump(driver, rank, lambda: receiver.finished)  # noqa: B023 - it is called here
        wait_until(rank.saw_the_end)
        assert driver.link_to(KEY, rank.path) is out and out.fate is None


def test_a_link_stays_open_for_what_it_is_owed(driver: Driver, listen: Listen) -> None:
    rank = listen()
    out = open_link(driver, rank)
    receivers = [Answers() for _ in range(3)]
    for call_id, receiver in enumerate(receivers):
        driver.send(out, call(call_id), call_id + 1, receiver, 0)
    pump(driver, rank, lambda: len(rank.frames) == 3)
    rank.send(STATE, [0, True])
    for call_id, receiver in enumerate(receivers):
        assert out.link is not None and not out.link.closed
        rank.answer(call_id + 1)
        pump(driver, rank, lambda: receiver.finished)  # noqa: B023 - it is called here
    wait_until(rank.saw_the_end)


def test_a_link_stays_open_when_the_actor_has_begun_anew(driver: Driver, listen: Listen) -> None:
    """Both are there when this process looks; or what has to be read first has not been read."""
    rank = listen()
    out = open_link(driver, rank)
    rank.send(STATE, [0, True])
    rank.send(STATE, [0, False])
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    pump(driver, rank, lambda: rank.frames)
    rank.answer(1)
    pump(driver, rank, lambda: receiver.finished)
    assert out.link is not None and not out.link.closed and not out.idle


def test_what_is_sent_while_a_link_falls_asleep_is_not_lost(driver: Driver, listen: Listen) -> None:
    """The call is noted between the look at what is owed and the end of the link."""
    rank = listen()
    out = open_link(driver, rank)
    link = out.link
    assert link is not None
    pump(driver, rank, lambda: rank.handshake.done)
    receiver = Answers()
    sent: list[threading.Thread] = []

    class Slow:
        """Stands in for the link, while a call is sent from another thread."""

        def at_rest(self) -> bool:
            sent.append(threading.Thread(target=driver.send, args=(out, call(1), 1, receiver, 0)))
            sent[0].start()
            wait_until(lambda: out.outstanding)
            return True

        def close(self) -> None:
            link.close()

    out.stopped = True
    slow: Any = Slow()
    driver._reader.make_idle(out, slow)
    sent[0].join(10)
    wait_until(rank.saw_the_end)
    pump(driver, rank, lambda: rank.frames)
    rank.send(RESULT, [1, None])
    pump(driver, rank, lambda: receiver.finished)
    assert receiver.delivered and not out.stopped


def test_a_sleeping_link_shares_the_fate_of_its_rank(driver: Driver, listen: Listen, tree: FakeTree) -> None:
    rank = listen()
    out = open_link(driver, rank)
    rank.send(STATE, [0, True])
    pump(driver, rank, lambda: out.idle)
    tree.kill(driver, 0, DIED)
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    assert receiver.lost == [(0, "died", False)]


def reaches(driver: Driver, rank: FakeRank, out: Any, call_id: int) -> bool:
    """Whether a call is answered by who listens now."""
    receiver = Answers()
    driver.send(out, call(call_id), call_id, receiver, 0)
    assert out.fate is None and not receiver.lost
    pump(driver, rank, lambda: rank.frames)
    rank.answer(call_id)
    pump(driver, rank, lambda: receiver.finished)
    return bool(receiver.delivered)


def test_what_was_sent_to_a_rank_that_is_started_again_is_lost_and_the_next_call_opens_the_link(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, out, receiver = asked(driver, listen)
    rank.serve()
    tree.kill(driver, 0, RESTARTS)
    assert receiver.lost == [(0, "died", True)]
    assert rank.saw_the_end()
    rank.frames.clear()
    assert reaches(driver, rank, out, 2)
    tree.kill(driver, 0, DIED)  # it is watched again
    assert out.fate == DIED


def test_who_receives_is_asked_of_the_process_that_took_the_place_of_a_rank(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, out, _ = asked(driver, listen)
    tree.kill(driver, 0, RESTARTS)
    assert rank.saw_the_end()
    assert driver.receivers([out], block=False) is None, "it is not known yet; the link is opened for that"
    pump(driver, rank, lambda: out.server.pid)
    assert driver.receivers([out], block=True) == [out.server]


def test_what_is_for_one_process_only_is_not_sent_to_the_one_in_its_place(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, out, _ = asked(driver, listen)
    only = {out.server.pid}
    tree.kill(driver, 0, RESTARTS)
    assert rank.saw_the_end()
    rank.frames.clear()
    replies = [Answers() for _ in range(3)]
    assert driver.send(out, call(2), 2, replies[0], 0, only) and out.idle, "nobody is dialled for it"
    rank.handshake = ServerHandshake(SECRET, ROLE_DATA, Identity(0, 0, 77))
    assert reaches(driver, rank, out, 3) and out.server.pid == 77
    rank.frames.clear()
    assert driver.send(out, call(4), 4, replies[1], 0, only)
    driver.send(out, call(5), 5, replies[2], 0, {77})
    pump(driver, rank, lambda: rank.frames)
    assert [frame.header[0] for frame in rank.frames] == [5]
    assert [reply.lost for reply in replies] == [[(0, "died", False)], [(0, "died", False)], []]


def test_another_process_in_the_place_of_a_rank_is_sent_nothing_before_the_end_of_that_is_known(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank = listen()
    out = open_link(driver, rank)
    rank.send(STATE, [0, True])
    pump(driver, rank, lambda: out.idle)
    assert rank.saw_the_end()
    rank.handshake = ServerHandshake(SECRET, ROLE_DATA, Identity(0, 0, 77))
    receiver = Answers()
    driver.send(out, call(1), 1, receiver, 0)
    pump(driver, rank, lambda: out.disconnected)
    tree.kill(driver, 0, RESTARTS)
    assert receiver.lost == [(0, "died", False)]
    assert rank.saw_the_end() and not rank.frames
    assert reaches(driver, rank, out, 2)


def test_what_had_not_left_for_a_rank_that_is_started_again_surely_did_not_run(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    receiver = Answers()
    out = driver.link_to(KEY, listen().path)
    driver.send(out, call(1), 1, receiver, 0)
    tree.kill(driver, 0, RESTARTS)
    assert receiver.lost == [(0, "died", False)]


def test_a_lost_link_comes_back_with_its_rank(
    driver: Driver, listen: Listen, tree: FakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the stream was seen long before the end of the process."""
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.0)
    rank = listen()
    out = open_link(driver, rank)
    rank.serve()
    assert rank.sock is not None
    rank.sock.shutdown(socket.SHUT_WR)
    pump(driver, rank, lambda: out.fate is not None)
    assert out.fate.kind == "link"
    tree.kill(driver, 0, RESTARTS)
    assert rank.saw_the_end()
    assert reaches(driver, rank, out, 1)
