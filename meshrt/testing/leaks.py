"""What a test leaves behind in its process: threads, child processes, descriptors, named segments; and who holds it.

Two moments are compared. What the runtime keeps for as long as the program goes on is no leak: its threads, host
agents, and descriptors that objects of the runtime hold. Nor are the helpers that multiprocessing keeps.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from meshrt.files import RUNTIME_FILES, is_library_file
from meshrt.host.osutil import RUN_VARIABLE, children_of
from meshrt.transport.kernel import kernel_state

__all__ = ["Footprint", "explained", "left_behind"]

#: Seconds between the first two looks; each further pause is twice as long, up to the second number.
_PAUSE, _LONGEST = 0.01, 0.2
_SEGMENTS = Path("/dev/shm")
#: Most objects between a descriptor and what is named as its holder.
_FAR = 6
_OURS = "meshrt."
_FILES = (socket.socket, io.FileIO)
_ENDS = (types.ModuleType, types.FunctionType, types.FrameType, type)


@dataclass(frozen=True)
class Footprint:
    """What this process has at a moment, each as a text. On the main thread."""

    items: frozenset[str]

    @classmethod
    def now(cls, *more: str) -> Footprint:
        """Look now. ``more``: further items."""
        return cls(frozenset([*_descriptors(), *_threads(), *_processes(), *_segments(), *more]))

    def beyond(self, before: Footprint, *, of_program: bool = False) -> list[str]:
        """Return what is here and was not there before.

        Args:
            of_program: A program of meshrt goes on: without what that keeps.
        """
        found = sorted(self.items - before.items)
        return [each for each in found if not (_is_of_others(each) or (of_program and _is_of_program(each)))]


def left_behind(
    before: Footprint, seconds: float, look: Callable[[], Footprint] = Footprint.now, *, of_program: bool = False
) -> list[str]:
    """Return what is left after so many seconds, or as soon as nothing is. ``look``, ``of_program``: as above."""
    deadline, pause = time.monotonic() + seconds, _PAUSE
    judged, found = before.items, list[str]()
    while look().items - before.items:
        gc.collect()  # and then anew: what is in a cycle of objects is not held
        now, is_last = look(), time.monotonic() > deadline
        if is_last or now.items != judged:  # whose each is takes long to find out
            found, judged = now.beyond(before, of_program=of_program), now.items
        if is_last or not found:
            return found
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
    return []


def explained(items: Iterable[str]) -> str:
    """Return a line for each item, with what is known of it, and of who holds it."""
    how: dict[str, Callable[[str], str]] = {"descriptor": _socket, "thread": _place, "process": _command}
    return "\n".join(f"  {item}{how[kind](item) if (kind := item.split()[0]) in how else ''}" for item in items)


# ---- what is there


def _descriptors() -> Iterator[str]:
    helpers = [getattr(each, name, None) for each in _helpers() for name in ("_fd", "_forkserver_alive_fd")]
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if number > 2 and number not in helpers:  # pytest captures these, and does not where a module ends
                yield f"descriptor {number} -> {os.readlink(f'/proc/self/fd/{number}')}"
        except FileNotFoundError:
            pass  # the descriptor of the listing itself


def _threads() -> list[str]:
    return [f"thread {thread.native_id} {thread.name}" for thread in threading.enumerate()]


def _processes() -> Iterator[str]:
    helpers = [getattr(each, name, None) for each in _helpers() for name in ("_pid", "_forkserver_pid")]
    waiting = [(pid, "a child") for pid in children_of(os.getpid()) if pid not in helpers]
    for pid, kind in waiting:
        yield f"process {pid}, {kind}"
        waiting += [(child, f"below {pid}") for child in children_of(pid)]


def _helpers() -> list[object]:
    names = ("resource_tracker", "forkserver")
    return [getattr(sys.modules.get(f"multiprocessing.{name}"), f"_{name}", None) for name in names]


def _segments() -> Iterator[str]:
    for path in _SEGMENTS.iterdir() if _SEGMENTS.is_dir() else ():
        try:
            if (status := path.stat()).st_uid == os.getuid():
                yield f"segment {path} ({status.st_size} bytes)"
        except OSError:
            pass  # gone meanwhile


# ---- whose it is


def _is_of_others(item: str) -> bool:
    """Whether it is a segment that a process has mapped which is none of this one's."""
    kind, name, *_ = item.split()
    if kind != "segment":
        return False
    own = {os.getpid(), *(int(each.split()[1].rstrip(",")) for each in _processes())}
    others = [int(each) for each in os.listdir("/proc") if each.isdigit() and int(each) not in own]
    return any(name in _text(f"/proc/{pid}/maps") for pid in others)


def _is_of_program(item: str) -> bool:
    kind, name, *_ = item.split()
    if kind == "process":
        pid, mark = name.rstrip(","), f"{RUN_VARIABLE}="
        return "a child" in item and (mark in _text(f"/proc/{pid}/environ") or mark in _text(f"/proc/{pid}/cmdline"))
    if kind == "descriptor":
        target = item.partition(" -> ")[2]
        if target == os.devnull and not _files_at(int(name)):
            return True  # the event loop and the runtime keep it for when no descriptor is free
        return target.startswith(("anon_inode:", "/memfd:meshrt")) or any(
            each.startswith(_OURS) for each in _holders(int(name))
        )
    return kind == "thread" and item.split(maxsplit=2)[2].startswith("meshrt-")


def _holders(number: int) -> list[str]:
    """Return what holds a descriptor: variables of modules, and types of objects; one of the runtime's is the last."""
    level: list[object] = list(_files_at(number))
    names: list[str] = []
    seen = set(map(id, level))
    for _ in range(_FAR):
        found = gc.get_referrers(*level)
        seen |= {id(level), id(found)}
        held, level = level, []
        for each in found:
            if id(each) in seen:
                continue
            seen.add(id(each))
            owner = type(each).__module__
            if isinstance(each, dict) and "__spec__" in each and "__name__" in each:
                which = [name for name, value in each.items() if any(value is one for one in held)]
                names += [f"{each['__name__']}.{name}" for name in which]
            elif owner.partition(".")[0] not in sys.stdlib_module_names:
                names.append(f"{owner}.{type(each).__qualname__}")
                if owner.startswith(_OURS):
                    return names
            elif not isinstance(each, _ENDS):
                level.append(each)
    return names


def _files_at(number: int) -> list[socket.socket | io.FileIO]:
    return [each for each in gc.get_objects() if issubclass(type(each), _FILES) and _number(each) == number]


def _number(file: socket.socket | io.FileIO) -> int:
    try:
        return file.fileno()
    except ValueError:  # closed
        return -1


# ---- what is said of it


def _socket(item: str) -> str:
    number = int(item.split()[1])
    names = dict.fromkeys(_holders(number))
    held = f", held by {', '.join(names)}" if names else ""
    copy = -1
    try:
        copy = os.dup(number)
        with socket.socket(fileno=copy) as same:
            copy = -1
            return f" at {same.getsockname()}{held}"
    except OSError:
        if copy >= 0:  # not a socket
            os.close(copy)
        return held


def _place(item: str) -> str:
    native = int(item.split()[1])
    (ident, *_) = [each.ident for each in threading.enumerate() if each.native_id == native] or [None]
    frame = sys._current_frames().get(ident or 0)
    while frame is not None and (is_library_file(file := frame.f_code.co_filename) or file.startswith(RUNTIME_FILES)):
        frame = frame.f_back
    return "" if frame is None else f", at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}()"


def _command(item: str) -> str:
    pid = int(item.split()[1].rstrip(","))
    if kernel_state(pid) == "Z":
        return ", which has ended, and has not been waited for"
    return f" ({_text(f'/proc/{pid}/cmdline').replace(chr(0), ' ').strip()[:200]})"


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""  # ended meanwhile, or of another user
