"""One question to many ranks of this host: asked here, grouped here, sent up in few messages.

The root sends one ``gather``; this side puts the operation to each rank (one encoding for all of them), groups equal
answers, and sends ``gathered`` messages: the first after `_FIRST` seconds if not all are in, then every `_NEXT` when
there is something new, and at once when all are in. Of a rank that ends, the root learns by its ``gone``.

A rank::

    asked -> answered | refused
          -> accepted  (its answer comes later) -> answered | refused
          -> silent    for `_SILENT` seconds: it was stopped by a signal, or C code holds its GIL, and then faulthandler
                       is asked for its stacks. If it answers all the same, its answer counts.

Silence, and the time of the question itself, are counted from the last answer of any rank: where many ranks share few
processors, the last one is late but not silent. Ranks that wait for a processor when that time is over are given
`_LATE_SECONDS` more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from meshrt.errors import ProtocolError
from meshrt.host.child import Child
from meshrt.host.dumps import Dumps
from meshrt.wire.control import Address, Message, control_frame
from meshrt.wire.tree import Answer, Gather, Gathered, Later, Refusal, Request

__all__ = ["Gathers"]

_FIRST = 0.04
_NEXT = 0.08
#: Seconds between two looks at a rank that was asked for its stacks.
_LOOK = 0.01
_SILENT = 0.3
#: Seconds more for ranks that have not answered because they had no processor.
_LATE_SECONDS = 3.0
#: A look at silent ranks reads files of each; it takes at most one part in so many of the agent's time.
_LOOK_SHARE = 5
#: Seconds after which the root hears of a question although there is nothing new.
_SIGN = 0.25
#: Bytes of answers in one message; a single answer may be longer.
_BATCH = 512 << 10


_Sent = tuple[str, str, list[int], Any, list[Any] | None]


class _Group:
    """Ranks of a mesh with the same answer, not sent up yet."""

    __slots__ = ("per", "ranks", "same", "sizes")

    def __init__(self, same: Any) -> None:
        self.same = same
        self.ranks: list[int] = []
        self.per: list[Any] = []
        self.sizes: list[int] = []


class _Gather:
    """One question."""

    def __init__(self, number: int, seconds: float, stack_suffices: bool, now: float) -> None:
        self.number = number
        self.seconds = seconds
        self.stack_suffices = stack_suffices
        self.begun = now
        #: When a rank was last heard of.
        self.heard = now
        self.flush_at = now + _FIRST
        #: When the root was last told anything.
        self.told = now
        self.waiting: dict[Address, Child] = {}
        self.accepted: set[Address] = set()
        #: What is known of silent ranks: state and stack.
        self.silent: dict[Address, tuple[str, str]] = {}
        self.groups: dict[tuple[str, str, bytes], _Group] = {}

    @property
    def deadline(self) -> float:
        """When ranks that have not answered are reported as silent."""
        return self.heard + self.seconds

    def patience(self) -> float:
        """Return when ranks that have said nothing count as silent."""
        latest = max(self.begun + _SILENT, self.deadline - _SILENT)
        return min(self.heard + _SILENT, latest, self.deadline)

    def add(self, address: Address, kind: str, same: Any, per: Any = None) -> None:
        """Take in the state of one rank."""
        mesh, rank = address
        packed: bytes = msgpack.packb(same, unicode_errors="backslashreplace")
        group = self.groups.setdefault((mesh, kind, packed), _Group(same))
        group.ranks.append(rank)
        group.per.append(per)
        group.sizes.append(8 if per is None else len(msgpack.packb(per, unicode_errors="backslashreplace")))

    def take(self) -> list[list[_Sent]]:
        """Return and forget what is new: messages of ``(mesh, kind, ranks, same, per or None)``."""
        messages: list[list[_Sent]] = [[]]
        room = _BATCH
        for (mesh, kind, packed), group in self.groups.items():
            start = 0
            while start < len(group.ranks):
                if room < len(packed) + group.sizes[start] and messages[-1]:
                    messages.append([])
                    room = _BATCH
                room -= len(packed)
                end = start + 1
                room -= group.sizes[start]
                while end < len(group.ranks) and room >= group.sizes[end]:
                    room -= group.sizes[end]
                    end += 1
                per = group.per[start:end]
                kept = per if any(each is not None for each in per) else None
                messages[-1].append((mesh, kind, group.ranks[start:end], group.same, kept))
                start = end
        self.groups.clear()
        return [message for message in messages if message]


class Gathers:
    """The questions under way.

    Args:
        children: The ranks of this host.
        send: Sends bytes to a rank.
        tell: Sends a message to the root. Raises ProtocolError for one that is too long.
        later: Runs a function after so many seconds.
        dumps: Asks ranks for their stacks.
    """

    def __init__(
        self,
        children: Mapping[Address, Child],
        send: Callable[[Child, bytes], None],
        tell: Callable[[Gathered], None],
        later: Callable[[float, Callable[[], None]], None],
        dumps: Dumps,
    ) -> None:
        self._children = children
        self._send = send
        self._tell = tell
        self._later = later
        self._dumps = dumps
        self._gathers: dict[int, _Gather] = {}

    def begin(self, question: Gather) -> None:
        """Ask the ranks."""
        number = question.id
        gather = _Gather(number, question.seconds, question.stack_suffices, time.monotonic())
        self._gathers[number] = gather
        # The numbers of the root's own requests to ranks are positive: the sign tells whose answer it is.
        request = control_frame(Request(-number, question.op, question.body))
        for mesh, ranks in question.targets.items():
            for rank in ranks:
                child = self._children.get((mesh, rank))
                if child is not None:
                    gather.waiting[mesh, rank] = child
                    if not child.full:
                        self._send(child, request)
        if gather.waiting:
            self._later(_FIRST, lambda: self._tick(gather))
        else:
            self._end(gather)

    def leave(self, number: int) -> None:
        """The root wants no more answers."""
        gather = self._gathers.get(number)
        if gather is not None:
            gather.groups.clear()
            self._end(gather)

    def takes(self, child: Child, message: Message) -> bool:
        """Take the answer of a rank, if ``message`` is one to a gather."""
        if not isinstance(message, Answer | Refusal | Later) or message.id >= 0:
            return False
        gather = self._gathers.get(-message.id)
        address = child.address
        if gather is None or address not in gather.waiting:
            return True  # too late
        gather.heard = time.monotonic()
        match message:
            case Later():
                gather.accepted.add(address)
                return True
            case Refusal(why=why):
                gather.add(address, "refused", why)
            case Answer(body={"same": same, **rest}):
                gather.add(address, "answered", same, rest.get("per"))
            case Answer(body=body):
                gather.add(address, "answered", body)
        self._settle(gather, address)
        return True

    def forget(self, address: Address) -> None:
        """A rank has ended, or has never begun."""
        for gather in tuple(self._gathers.values()):
            if address in gather.waiting:
                self._settle(gather, address)

    def _settle(self, gather: _Gather, address: Address) -> None:
        self._dumps.forget(gather.waiting.pop(address))
        if not gather.waiting:
            self._end(gather)

    def _end(self, gather: _Gather) -> None:
        del self._gathers[gather.number]
        for child in gather.waiting.values():
            self._dumps.forget(child)
        self._flush(gather)

    def _tick(self, gather: _Gather) -> None:
        if self._gathers.get(gather.number) is not gather:
            return
        now = time.monotonic()
        last = now >= gather.deadline and not self._are_late(gather, now)
        if last or now >= gather.patience():
            self._look(gather, last)
            if self._gathers.get(gather.number) is not gather:
                return
        looked = time.monotonic() - now
        if now >= gather.flush_at:
            gather.flush_at = now + _NEXT
            if not gather.groups and now >= gather.told + _SIGN:
                gather.told = now
                self._tell(Gathered(gather.number, []))  # this agent lives, and waits
            self._flush(gather)
        known = len(gather.silent) + len(gather.accepted)
        looking = now >= gather.patience() and known < len(gather.waiting)
        next_look = _LOOK if looking else _NEXT if now >= gather.patience() else gather.patience() - now
        pause = min(next_look, max(gather.deadline - now, _LOOK), gather.flush_at - now)
        self._later(max(0.001, pause, looked * _LOOK_SHARE), lambda: self._tick(gather))

    def _are_late(self, gather: _Gather, now: float) -> bool:
        """Whether ranks lack a processor, so that the end of the time of the question does not mean silence."""
        if now >= gather.deadline + _LATE_SECONDS:
            return False
        silent = gather.waiting.keys() - gather.accepted
        return any(self._dumps.lacks_processor(gather.waiting[address]) for address in silent)

    def _look(self, gather: _Gather, last: bool) -> None:
        """Find out about the silent ranks; with ``last`` they are reported with what is known."""
        for address, child in tuple(gather.waiting.items()):
            found = gather.silent.get(address)
            if found is None and (last or address not in gather.accepted):
                found = self._dumps.look(child, ask=not last)
            if found is not None:
                gather.silent[address] = found
            if last or (found is not None and (found[0] == "stopped" or gather.stack_suffices)):
                state, stack = found or ("late" if self._dumps.lacks_processor(child) else "", "")
                gather.add(address, "silent", {"state": state, "stack": stack})
                self._settle(gather, address)

    def _flush(self, gather: _Gather) -> None:
        for groups in gather.take():
            gather.told = time.monotonic()
            try:
                self._tell(Gathered(gather.number, groups))
            except ProtocolError as error:
                for mesh, _, ranks, _, _ in groups:
                    refused = (mesh, "refused", ranks, f"the answer is too long: {error}", None)
                    self._tell(Gathered(gather.number, [refused]))
