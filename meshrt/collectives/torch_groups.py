"""The process groups of this process, read from torch without importing it.

A collective is known from torch's flight recorder, which keeps the last 2000 that were entered, and which of them have
ended, unless ``TORCH_FR_BUFFER_SIZE`` says otherwise. To read these takes about 70 ms (measured with torch 2.13 and
gloo). Without it, a collective is known from the stack of the thread that is in a function of `torch.distributed`, and
the counter of its group.

All of it is private to torch. A part that is missing or different leads to no facts, never to an error. On the control
thread.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from meshrt.collectives.facts import GroupFacts, WorldFacts
from meshrt.ranks import fold_ranks

__all__ = ["BlockedThread", "NamedGroup", "dimension_names", "is_in_torch", "name_of", "read_world", "which_groups"]

#: What the script's device mesh calls its groups, by torch's names of them.
dimension_names: dict[str, str] = {}

_MODULE = "torch.distributed.distributed_c10d"
_LIBRARY = "torch._C._distributed_c10d"
#: The dumps of the recorders: of NCCL, and of all other backends.
_DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
#: Functions of `torch.distributed` that enter a collective.
_COLLECTIVES = frozenset(
    {
        "all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all",
        "all_to_all_single", "barrier", "broadcast", "gather", "reduce", "reduce_scatter", "reduce_scatter_single",
        "reduce_scatter_tensor", "scatter",
    }
)  # fmt: skip
#: Functions of `torch.distributed` in which a thread waits for one other rank, or for no collective that is numbered.
_POINT_TO_POINT = frozenset({"batch_isend_irecv", "monitored_barrier", "recv", "send"})
#: The backend whose counter of a group also counts point-to-point operations, of which ranks have different numbers.
_COUNTS_ALL = "gloo"
#: What is called in user code to wait for what torch does: methods of a collective's handle, and of a tensor.
_WAITS = frozenset({"backward", "cpu", "item", "numpy", "synchronize", "tolist", "wait"})
#: Descriptions of a group that nobody has given it.
_NO_NAME = ("", "undefined")
#: ... of a group that a device mesh has made begin with this.
_DIMENSION = "mesh_"


class _Entered(NamedTuple):
    """A collective that has been entered.

    Attributes:
        ended: It is known for its number only.
    """

    key: str
    number: int
    operation: str
    sizes: str
    seconds: float
    thread: int
    ended: bool = False


class _Recorded(NamedTuple):
    """What the flight recorders have seen to begin, oldest first.

    Attributes:
        is_complete: Nothing has been dropped for what came later.
    """

    entered: Sequence[_Entered]
    is_complete: bool


class NamedGroup(Protocol):
    """A process group of torch."""

    @property
    def group_name(self) -> str: ...
    @property
    def group_desc(self) -> str: ...


class _Group(NamedGroup, Protocol):
    """The same, as far as it is read."""

    def _get_sequence_number_for_group(self) -> int: ...


class BlockedThread(NamedTuple):
    """A thread that is blocked in torch.

    Attributes:
        ident: Of the thread.
        actor: That it serves.
        seconds: For how long it is known to be there.
        handle: It waits for one handle, of what it has begun before; which one is not seen.
    """

    ident: int
    actor: str
    seconds: float
    handle: bool = False


def is_in_torch(file: str, called: str) -> bool:
    """Whether a thread waits for torch, as far as its stack shows.

    Args:
        file: Of the innermost frame.
        called: What is called there, ``"handle.wait"``; "": not known.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return file.startswith(tuple(f"{place}/" for place in torch.__path__)) or called.rpartition(".")[2] in _WAITS


def which_groups() -> Sequence[int]:
    """Return which process groups this process is a member of: what changes when they do."""
    world = getattr(sys.modules.get(_MODULE), "_world", None)
    return [id(group) for group in list(getattr(world, "pg_map", ()))]


def read_world(blocked: Sequence[BlockedThread], *, numbers: bool = True) -> WorldFacts | None:
    """Return the process groups of this process; None: it has none, or this torch does not show them.

    Args:
        blocked: The threads of which one may be in a collective.
        numbers: Also which collectives have been entered; a recorder that is full takes a tenth of a second for it.
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        return None
    try:
        return _read(module, blocked, numbers)
    except Exception:  # its parts are different in each version of torch: `where` is then as it is without torch
        return None


def _read(module: ModuleType, blocked: Sequence[BlockedThread], numbers: bool) -> WorldFacts | None:
    world = module._world
    if world.default_pg is None:
        return None
    recorded = _recorded() if numbers else None
    entered = list(_from_stacks(module, blocked)) if recorded is None else recorded.entered
    groups = [
        _facts(group, world.pg_group_ranks[group], entered, _COUNTS_ALL in str(world.pg_map[group]), recorded)
        for group in list(world.pg_map)
    ]
    keys = [group.key for group in groups]
    rank = int(world.default_pg.rank())
    store = _store_of(world.pg_map[world.default_pg][1])
    pending = sorted((one for one in entered if not one.ended), key=lambda one: -one.seconds)
    for thread in blocked:
        called = _call_of(module, thread.ident)
        if called is not None and called.f_code.co_name in _POINT_TO_POINT:
            continue
        # What this thread has entered; else the oldest one, which a thread of torch's has entered for it.
        own = [one for one in pending if one.thread == thread.ident]
        if called is not None:  # others may be under way that it does not wait for
            key = _group_of(module, called).group_name
            own = [one for one in own if one.key == key]
        found = own if own or called is not None else pending
        if called is None and thread.handle and len({one.key for one in found}) > 1:
            continue  # to say that it waits for one group would blame ranks that it may not wait for
        for one in found[:1]:
            return WorldFacts(rank, groups, thread.actor, keys.index(one.key), store)
    here = [one for one in entered if one.thread == threading.get_ident()]
    last = keys.index(here[-1].key) if here and here[-1].key in keys else -1
    return WorldFacts(rank, groups, store=store, last=last)


def _store_of(store: object) -> str:
    """Return by what the members of a world have found each other: the port or the file of its store."""
    while (within := getattr(store, "underlying_store", None)) is not None:
        store = within
    return str(getattr(store, "port", "") or getattr(store, "path", ""))


def _facts(
    group: _Group, ranks: Iterable[int], entered: Sequence[_Entered], counts_all: bool, recorded: _Recorded | None
) -> GroupFacts:
    """Return the facts of a group.

    Args:
        entered: What is known of all groups, oldest first.
        counts_all: Its counter is not the number of its collectives.
        recorded: What the recorders have; None: they are off.
    """
    key = str(group.group_name)
    try:
        last = int(group._get_sequence_number_for_group())
    except RuntimeError:
        last = 0  # this backend does not count
    own = [one for one in entered if one.key == key]
    unsure = False
    if counts_all:
        if recorded is not None and (own or recorded.is_complete):
            # The counter begins anew where the group of an earlier world had this key, the recorder does not forget it.
            last = min(last, own[-1].number if own else 0)
        else:
            unsure = last > 0
    facts = GroupFacts(key, name_of(group), fold_ranks(ranks), last, unsure=unsure)
    oldest = min((one for one in own if not one.ended), key=lambda one: one.number, default=None)
    if oldest is None:
        return facts
    return replace(
        facts,
        entered=max(last, oldest.number),
        number=oldest.number,
        operation=oldest.operation,
        sizes=oldest.sizes,
        seconds=round(oldest.seconds, 3),
    )


def name_of(group: NamedGroup) -> str:
    """Return what a user calls a group: as its device mesh calls the dimension, else by its description."""
    description = str(getattr(group, "group_desc", ""))
    if group.group_name in dimension_names:
        return dimension_names[group.group_name]
    if description in _NO_NAME:
        return f"group_{group.group_name}"
    return re.sub(r"\W+", "_", description.removeprefix(_DIMENSION))


def _recorded() -> _Recorded | None:
    """Return what the flight recorders have, which number collectives and nothing else; None: they are off.

    Those of all backends but NCCL also have what has ended.
    """
    library = sys.modules[_LIBRARY]
    found: list[_Entered] = []
    # Before its first entry a recorder does not tell whether it is on.
    on = hasattr(library, _DUMPS[-1]) and os.environ.get("TORCH_FR_BUFFER_SIZE", "0") not in ("", "0")
    first = 0
    now = time.time_ns()
    for name in _DUMPS:
        dump = getattr(library, name, None)
        trace = json.loads(dump(True, True)) if dump is not None else {}
        on = on or bool(trace.get("pg_status"))
        entries = trace.get("entries", ())
        if entries and name == _DUMPS[-1]:
            first = min(int(entry.get("record_id", 0)) for entry in entries)
        for entry in entries:
            if entry["is_p2p"]:
                continue
            operation = str(entry["profiling_name"]).rpartition(":")[2].strip("_")
            sizes = ", ".join(map(str, entry["input_sizes"]))
            seconds = (now - entry["time_created_ns"]) / 1e9
            thread = int(entry.get("thread_id") or 0)
            key = str(entry["process_group"][0])
            ended = entry["retired"] or entry["state"] == "completed"
            found.append(_Entered(key, entry["collective_seq_id"], operation, sizes, seconds, thread, ended))
    return _Recorded(found, not first) if on else None


def _from_stacks(module: ModuleType, blocked: Sequence[BlockedThread]) -> Iterator[_Entered]:
    """Return the collectives that threads are in, by their stacks."""
    for thread in blocked:
        frame = _call_of(module, thread.ident)
        if frame is not None and frame.f_code.co_name in _COLLECTIVES:
            group = _group_of(module, frame)
            number = int(group._get_sequence_number_for_group())
            operation = frame.f_code.co_name
            yield _Entered(str(group.group_name), number, operation, "", thread.seconds, thread.ident)


def _call_of(module: ModuleType, thread: int) -> FrameType | None:
    """Return the innermost call of a function of `torch.distributed` that waits for other ranks."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == module.__file__ and code.co_name in _COLLECTIVES | _POINT_TO_POINT:
            return frame
        frame = frame.f_back
    return None


def _group_of(module: ModuleType, frame: FrameType) -> _Group:
    """Return the group that a function of `torch.distributed` was given."""
    group: _Group = frame.f_locals.get("group") or module._world.default_pg
    return group
