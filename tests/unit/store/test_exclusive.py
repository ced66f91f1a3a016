"""The lock of the store: not twice by one thread, and free again whatever interrupts who has it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from meshrt.errors import UsageError
from meshrt.store.exclusive import Exclusive
from meshrt.transport.interrupts import Shield


@pytest.fixture
def lock() -> Iterator[Exclusive]:
    shield = Shield()
    shield.install()
    yield Exclusive()
    shield.uninstall()


def is_free(lock: Exclusive) -> bool:
    """Whether another thread gets it."""
    got: list[bool] = []

    def take() -> None:
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(10)
    return got == [True]


def test_a_thread_that_has_it_is_told(lock: Exclusive) -> None:
    with lock:
        assert not lock.acquire() and not is_free(lock)
        with pytest.raises(UsageError, match="on the same thread"), lock:
            pass
    assert is_free(lock)


def test_ctrl_c_waits_until_it_is_given_back(lock: Exclusive) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), lock:  # noqa: PT012  # which of them raises is what is looked for
        signal.raise_signal(signal.SIGINT)
        done.append("all that is done under it")
    assert done and is_free(lock)


def test_who_waits_under_it_hears_ctrl_c(lock: Exclusive) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), lock:  # noqa: PT012  # as above
        signal.raise_signal(signal.SIGINT)
        lock.pause()
        done.append("what is waited for")
    assert not done and is_free(lock)
    with lock:
        lock.pause()


def test_ctrl_c_ends_waiting_for_another_thread(lock: Exclusive) -> None:
    has, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has.wait(10)
    signaller = threading.Timer(0.0, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # as above
        signaller.start()
        lock.acquire()
    over.set()
    thread.join(10)
    signaller.join(10)
    assert is_free(lock)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # at once, as nobody shields from it
