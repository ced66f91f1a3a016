"""The process groups of this process, read from torch without importing it.

A collective is known from the stack of the thread that is in a function of `torch.distributed`, and the counter of its
group. Where the stack does not tell, as in ``backward()`` or ``handle.wait()``, torch's flight recorder does. It keeps
the last 2000 that were entered, unless ``TORCH_FR_BUFFER_SIZE`` says otherwise. To read these takes up to 70 ms (as
measured with torch 2.13 and gloo).

All of it is private to torch. A part that is missing or different leads to no facts, never to an error. On the control
thread.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from meshrt.collectives.facts import GroupFacts, WorldFacts
from meshrt.ranks import fold_ranks

__all__ = ["BlockedThread", "NamedGroup", "count_groups", "is_in_torch", "name_of", "read_world"]

_MODULE = "torch.distributed.distributed_c10d"
_LIBRARY = "torch._C._distributed_c10d"
#: The dumps of the recorders: of NCCL, and of all other backends.
_DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
#: Functions of `torch.distributed` that enter a collective.
_COLLECTIVES = frozenset(
    {
        "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "barrier", "broadcast",
        "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    }
)  # fmt: skip
#: What is called in user code to wait for what torch does: methods of a collective's handle, and of a tensor.
_WAITS = frozenset({"backward", "cpu", "item", "numpy", "synchronize", "tolist", "wait"})
#: Descriptions of a group that nobody has given it.
_NO_NAME = ("", "undefined")
#: ... of a group that a device mesh has made begin with this.
_DIMENSION = "mesh_"


class _Entered(NamedTuple):
    """A collective that has not ended."""

    key: str
    number: int
    operation: str
    sizes: str
    seconds: float
    thread: int
    recorded: bool = True


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
    """

    ident: int
    actor: str
    seconds: float


def is_in_torch(file: str, called: str) -> bool:
    """Whether a thread waits for torch, as far as its stack shows.

    Args:
        file: Of the innermost frame.
        called: What is called there, ``"handle.wait"``; "": not known.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return file.startswith(tuple(torch.__path__)) or called.rpartition(".")[2] in _WAITS


def count_groups() -> int:
    """Return how many process groups this process is a member of."""
    world = getattr(sys.modules.get(_MODULE), "_world", None)
    return len(getattr(world, "pg_map", ()))


def read_world(blocked: Sequence[BlockedThread]) -> WorldFacts | None:
    """Return the process groups of this process; None: it has none, or this torch does not show them."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return None
    try:
        return _read(module, blocked)
    except (
        Exception
    ):  # torch's own parts are different in each version: without facts `where` is as it is without torch
        return None


def _read(module: ModuleType, blocked: Sequence[BlockedThread]) -> WorldFacts | None:
    world = module._world
    if world.default_pg is None:
        return None
    entered = list(_from_stacks(module, blocked))
    if len(entered) < len(blocked):
        entered += _recorded()
    groups = [_facts(group, world.pg_group_ranks[group], entered) for group in list(world.pg_map)]
    keys = [group.key for group in groups]
    rank = int(world.default_pg.rank())
    entered.sort(key=lambda one: -one.seconds)
    for thread in blocked:
        # What this thread has entered; else the oldest one, which a thread of torch's has entered for it.
        own = [one for one in entered if one.thread == thread.ident]
        for one in (own or entered)[:1]:
            return WorldFacts(rank, groups, thread.actor, keys.index(one.key))
    return WorldFacts(rank, groups)


def _facts(group: _Group, ranks: Iterable[int], entered: Sequence[_Entered]) -> GroupFacts:
    key = str(group.group_name)
    try:
        last = int(group._get_sequence_number_for_group())
    except RuntimeError:
        last = 0  # this backend does not count
    name, dimension = name_of(group)
    facts = GroupFacts(key, name, fold_ranks(ranks), dimension, last)
    oldest = min((one for one in entered if one.key == key), key=lambda one: one.number, default=None)
    if oldest is None:
        return facts
    return replace(
        facts,
        entered=max(last, oldest.number),
        number=oldest.number,
        operation=oldest.operation,
        sizes=oldest.sizes,
        seconds=round(oldest.seconds, 3),
        recorded=oldest.recorded,
    )


def name_of(group: NamedGroup) -> tuple[str, bool]:
    """Return what a user calls a group, and whether a device mesh has made it, for the dimension of that name."""
    description = str(getattr(group, "group_desc", ""))
    if description in _NO_NAME:
        return f"group_{group.group_name}", False
    name = description.removeprefix(_DIMENSION)
    return re.sub(r"\W+", "_", name), name != description


def _recorded() -> list[_Entered]:
    """Return what the flight recorders have seen to begin and not to end."""
    library = sys.modules[_LIBRARY]
    found: list[_Entered] = []
    now = time.time_ns()
    for name in _DUMPS:
        dump = getattr(library, name, None)
        trace = json.loads(dump(True, True)) if dump is not None else {}
        for entry in trace.get("entries", ()):
            if entry["is_p2p"] or entry["retired"] or entry["state"] == "completed":
                continue
            operation = str(entry["profiling_name"]).rpartition(":")[2].strip("_")
            sizes = ", ".join(map(str, entry["input_sizes"]))
            seconds = (now - entry["time_created_ns"]) / 1e9
            thread = int(entry.get("thread_id") or 0)
            key = str(entry["process_group"][0])
            found.append(_Entered(key, entry["collective_seq_id"], operation, sizes, seconds, thread))
    return found


def _from_stacks(module: ModuleType, blocked: Sequence[BlockedThread]) -> Iterator[_Entered]:
    """Return the collectives that threads are in, by their stacks."""
    frames = sys._current_frames()
    for thread in blocked:
        frame: FrameType | None = frames.get(thread.ident)
        while frame is not None:
            operation = frame.f_code.co_name
            if frame.f_code.co_filename == module.__file__ and operation in _COLLECTIVES:
                group = frame.f_locals.get("group") or module._world.default_pg
                number = int(group._get_sequence_number_for_group())
                shape = getattr(frame.f_locals.get("tensor"), "shape", None)
                sizes = "" if shape is None else str(list(shape))
                yield _Entered(
                    str(group.group_name), number, operation, sizes, thread.seconds, thread.ident, recorded=False
                )
                break
            frame = frame.f_back
