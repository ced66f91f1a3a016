"""What is measured of every debugger, through whatever connection its people have."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from bench.debugger.protocol import Desk
from bench.scenarios import Settings, Values

__all__ = ["Scene", "at_a_breakpoint", "median_of"]


class Scene(NamedTuple):
    """What the person is told: where the program is, how large it is, where its blocked actors have their sockets."""

    address: str
    settings: Settings
    folder: str


def at_a_breakpoint(desk: Desk, settings: Settings) -> Values:
    """All ranks have just stopped: show them, work with one, move all. They are left stopped."""
    chosen = settings.ranks // 2
    values = {"debug_list": median_of(desk.show, settings.repeats(100))}
    values["debug_attach"] = median_of(lambda: desk.attach(chosen), settings.repeats(100), after=desk.detach)
    desk.attach(chosen)
    values["debug_print"] = median_of(lambda: desk.command("p rank"), settings.repeats(200))
    desk.detach()
    values["debug_cast"] = median_of(lambda: desk.cast("n", settings.ranks), settings.repeats(30))
    return values


def median_of(
    function: Callable[[], None],
    count: int,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> float:
    """Return the median of the seconds that ``count`` runs of a function take, after one that does not count."""
    taken: list[float] = []
    for _ in range(count + 1):
        before()
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
        after()
    return statistics.median(taken[1:])
