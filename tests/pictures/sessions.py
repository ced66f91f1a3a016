"""What is typed at a terminal for a picture, and what is seen there. ``/mnt`` is examples/."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tests.pictures.drawing import Screen, animated, still
from tests.pictures.terminal import WIDTH, screen_of, terminal
from tests.support.emulator import SECONDS

__all__ = ["SESSIONS"]

PROMPT = "meshrt_dbg>"
_AT_13 = "(debugee 13 hosts=3,gpus=1)"
#: A line that is typed, and the text and the prompt that are seen then.
_DEBUGGING = (
    ("where", "stopped in the debugger", PROMPT),
    ("attach debugee 13", "-> breakpoint()", _AT_13),
    ("n", "-> share = share_of(total, rank)", _AT_13),
    ("p total, rank", "(50, 13)", _AT_13),
    ("detach", "it stays stopped", PROMPT),
    ("cast debugee ranks(hosts=2:, gpus=(0,3)) p total * 3", "[8,11-12,15] 150", PROMPT),
    ("p debugee rank // 8", "[8-15] 1", PROMPT),
)


def debugger() -> str:
    """The session of README."""
    frames: list[tuple[float, Screen]] = []
    with terminal("debugging.py", lines=34) as me:
        me.sees("16 ranks", PROMPT)
        frames.append((1.5, screen_of(me)))
        for line, text, prompt in _DEBUGGING:
            me.types(line)
            me.sees(line)
            frames.append((1.2, screen_of(me)))
            me.types("\r")
            me.sees(text, prompt)
            me.settles()
            frames.append((2.5, screen_of(me)))
        me.types("continue\r")
        me.ends()
    return animated(frames, "python examples/debugging.py", WIDTH, "debugger")


#: What is seen when each rank has come to where it hangs.
_HANGS = ("likely culprits", "blocked in", "next_batch", "self.disk")


def where() -> str:
    """All ranks of a program that hangs."""
    with terminal("training.py", "hang") as me:
        me.sees("step 0:")
        shown, end = "", time.monotonic() + SECONDS
        while not all(text in shown for text in _HANGS):
            assert time.monotonic() < end, shown
            with terminal("-m", "meshrt", "where") as looks:
                shown = looks.ends()
                drawn = still(screen_of(looks), "meshrt where", WIDTH, "where")
    return drawn


def top() -> str:
    """The screen of ``meshrt top``."""
    with terminal("training.py", "wrong") as me:
        me.sees("step 50:")
        with terminal("-m", "meshrt", "top", lines=28) as screen:
            screen.sees("growth +")  # from the second look on
            screen.settles()
            drawn = still(screen_of(screen), "meshrt top", WIDTH, "top")
            screen.types("q")
            screen.ends()
    return drawn


def report() -> str:
    """The last lines of a program that has failed."""
    with terminal("failures.py", "crash", lines=60) as me:
        me.ends()
        return still(screen_of(me), "python examples/failures.py crash", WIDTH, "report")


#: What makes each picture, by its name.
SESSIONS: Mapping[str, Callable[[], str]] = {each.__name__: each for each in (debugger, where, top, report)}
