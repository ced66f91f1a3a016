"""Which threads the engine is shown: those that live, and none that ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from meshrt.debug.dap.engine.live_threads import LiveThreads


class Last:
    """Looks who runs when what its thread knew of itself goes."""

    def __init__(self, live: LiveThreads, seen: list[threading.Thread | None]) -> None:
        self.live = live
        self.seen = seen

    def __del__(self) -> None:
        self.seen.append(self.live.current_thread())


def test_a_thread_that_ends_is_none_and_one_that_gets_its_number_is_one() -> None:
    live, seen, own = LiveThreads(), list[threading.Thread | None](), threading.local()

    def work() -> None:
        seen.append(live.current_thread())
        own.last = Last(live, seen)

    before = vars(threading.Thread)["_delete"]
    live.watch(SimpleNamespace(start_monitoring=work))
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)
        assert seen == [thread, None]
        live._ended.append(threading.get_native_id())
        assert live.current_thread() is threading.main_thread()
    finally:
        live.leave()
    assert vars(threading.Thread)["_delete"] is before and threading is not live
