"""Plug-in: the time-outs of torch while a rank is stopped in a debugger: of collectives, and of a DataLoader.

A rank that waits in a collective for a stopped one gives up after the time-out of the process group, and the job fails.
gloo takes the time-out of an operation when that begins (measured with torch 2.13): so while any rank of the program is
stopped, the time-out of each group of gloo is `HELD` in every rank. An operation that has begun before keeps its own.
NCCL is left as it is: its watchdog could not be tried.

torch is never imported here, and any surprise in it means that a group is left out.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from types import FrameType
from typing import Protocol

from meshrt.collectives.torch_groups import name_of
from meshrt.hooks.operations import Data
from meshrt.hooks.table import hooks

__all__ = ["CollectiveLimit", "CollectiveLimits", "limits", "load", "of_loaders", "words"]

#: While a rank is stopped; longer than a person looks at one.
HELD = timedelta(days=30)
_MODULE = "torch.distributed.distributed_c10d"
#: Backends whose time-outs are held, by the names of their classes: those with which that was tried.
_HOLDS = ("ProcessGroupGloo",)


#: A batch that a DataLoader waits for: the name of its "backend", and where in its file it waits.
_LOADER, _LOADER_FILE, _WAITS = "DataLoader", "torch/utils/data/dataloader.py", "_get_data"


class CollectiveLimit(Data, frozen=True, array_like=True):
    """How long a rank waits for others in a collective.

    Attributes:
        name: The process group; "": the default group.
        backend: As torch names it: gloo, nccl.
        seconds: The time-out that the program has set.
        held: An operation that begins while a rank is stopped has no time-out.
    """

    name: str
    backend: str
    seconds: float
    held: bool


class _Options(Protocol):
    _timeout: timedelta


class _Backend(Protocol):
    """What is used of a backend of torch."""

    options: _Options

    def _set_default_timeout(self, timeout: timedelta) -> None: ...


class CollectiveLimits:
    """The time-outs of the process groups of this process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The backends that are held, and what the program has set for them.
        self._set: list[tuple[_Backend, timedelta]] = []

    def hold(self, held: bool) -> None:
        """Suspend the time-outs of what begins from now on, or put back what the program has set."""
        with self._lock:
            if not held:
                for backend, before in self._set:
                    if _timeout(backend) == HELD:  # the program has set no other one meanwhile
                        _set_timeout(backend, before)
                self._set.clear()
                return
            for _, _, backend in _backends():
                own = _timeout(backend)
                if own is not None and own < HELD and _is_held(backend) and _set_timeout(backend, HELD):
                    self._set.append((backend, own))

    def read(self) -> Sequence[CollectiveLimit]:
        """Return the time-outs of all groups of several ranks, the shortest one first; [] without torch.distributed."""
        with self._lock:
            found = []
            for name, kind, backend in _backends():
                own = next((before for each, before in self._set if each is backend), _timeout(backend))
                if own is not None:
                    found.append(CollectiveLimit(name, kind, own.total_seconds(), _is_held(backend)))
        return sorted(found, key=lambda limit: limit.seconds)


def of_loaders(frames: Iterable[FrameType]) -> list[CollectiveLimit]:
    """Return the time-outs of the DataLoaders that a stopped thread waits for, by its stack frames."""
    found = []
    for frame in frames:
        if frame.f_code.co_name == _WAITS and frame.f_code.co_filename.endswith(_LOADER_FILE):
            seconds = getattr(frame.f_locals.get("self"), "_timeout", None)
            if isinstance(seconds, int | float) and seconds > 0:
                found.append(CollectiveLimit("", _LOADER, float(seconds), False))
    return found


def _backends() -> Iterator[tuple[str, str, _Backend]]:
    """Iterate over the backends of all process groups of several ranks: name of the group, of the backend, and it."""
    world = getattr(sys.modules.get(_MODULE), "_world", None)
    seen: set[int] = set()
    try:
        groups = list(world.pg_map) if world is not None else []
    except Exception:
        return
    for group in groups:
        try:
            name = name_of(group)
            backends = [group._get_backend(device) for device in group._device_types] if group.size() > 1 else []
        except Exception:
            continue
        for backend in backends:
            if id(backend) not in seen:  # one may be that of several kinds of devices
                seen.add(id(backend))
                kind = type(backend).__name__.removeprefix("ProcessGroup").lower()
                yield "" if name == "default_pg" else name, kind, backend


def _is_held(backend: _Backend) -> bool:
    return type(backend).__name__ in _HOLDS


def _timeout(backend: _Backend) -> timedelta | None:
    try:
        found: object = backend.options._timeout
    except Exception:
        return None
    return found if isinstance(found, timedelta) else None


def _set_timeout(backend: _Backend, timeout: timedelta) -> bool:
    try:
        backend._set_default_timeout(timeout)
    except Exception:
        return False
    return True


class _Services(Protocol):
    def held(self) -> bool: ...


def words(found: Iterable[CollectiveLimit], stopped: float) -> Sequence[str]:
    """Return what a person is told of time-outs, in lines: of each backend the group that gives up first.

    Args:
        stopped: For how long the rank has been stopped, seconds.
    """
    first: dict[tuple[str, bool], CollectiveLimit] = {}
    for limit in found:
        first.setdefault((limit.backend, limit.held), limit)
    return [_line(limit, stopped) for limit in first.values()]


def _line(limit: CollectiveLimit, stopped: float) -> str:
    if limit.backend == _LOADER:
        return f"{_LOADER}: its time-out of {_time(limit.seconds)} began before the stop; meshrt does not suspend it"
    group = f"process group {limit.name!r}" if limit.name else "the default process group"
    left = limit.seconds - stopped
    early = f"time out within {_time(left)}" if left > 0 else "have timed out"
    later = "later waits last until no rank is stopped"
    if not limit.held:
        later = f"later waits time out after {_time(limit.seconds)}: meshrt does not suspend them"
    return f"{limit.backend}, {group}: ranks that already waited when this one stopped {early}; {later}"


def _time(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


limits = CollectiveLimits()
"""The time-outs of this process."""


def load(services: _Services) -> None:
    """Hold time-outs whenever a rank is stopped. Called once, in a rank at its first ping."""
    hooks.hold_changed.append(limits.hold)
    hooks.program_lost.append(lambda: limits.hold(False))
    if services.held():
        limits.hold(True)
