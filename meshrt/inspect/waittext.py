"""The waits (`meshrt.program.waits`) as data (`meshrt.inspect.merged`), and each as a line for a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from meshrt.hooks.facts import UnreadError, Wait
from meshrt.inspect.merged import CallWait, ChainEnd, Party, Unread, WaitChain, Waits
from meshrt.inspect.records import Record
from meshrt.inspect.shortening import short_path
from meshrt.inspect.visibility import own_index
from meshrt.program.groups import by_key
from meshrt.program.waits import CERTAIN_SECONDS, SCRIPT, Chain, Key, Mismatch, WaitGraph, targets_of
from meshrt.program.words import BLOCKED, IDLE, RUNNING, STOPPED
from meshrt.selection import fold_ranks

__all__ = ["doing", "unread_lines", "wait_lines", "waits_of"]

#: Most chains in an answer, and most steps of one: a ring may be as long as a mesh is large, and a message has a limit.
_MOST = 20
_PATH = 32
#: Most errors that nobody has read: the latest ones.
_UNREAD = 5
#: Most steps of one chain in a line.
_STEPS = 4
#: Most ends of one chain, and most lines of code, in a line.
_ENDS = 3


def doing(record: Record) -> str:
    """Say what a rank does, in words that follow "of rank 3, "."""
    shown = [frame for frame in record.frames if not frame.hidden]
    at = ""
    if shown:
        frame = shown[own_index([frame.file for frame in shown])]
        at = f" at {short_path(frame.file)}:{frame.line}, in {frame.function}"
    if record.state == IDLE:
        return "waiting for messages" + (f": it {record.holder}" if record.holder else "")
    if record.state == RUNNING:
        return f"running {record.endpoint}()" if record.endpoint else RUNNING
    if record.state == STOPPED:
        return f"stopped in the debugger{at}"
    if record.state == "busy":
        return f"in C code{at}"
    return f"blocked in {record.holder}{at}" if record.holder else f"blocked{at}"


def waits_of(
    graph: WaitGraph,
    names: Mapping[str, str],
    shown: Callable[[Key], bool] = lambda key: True,
    unread: Iterable[UnreadError] = (),
) -> Waits:
    """Return the waits.

    Args:
        names: The names of meshes, by id.
        shown: As in `WaitGraph.chains`.
        unread: Errors that the script has not read.
    """
    chains = graph.chains(shown)
    words = _Words(chains, names)
    told = [
        WaitChain(
            words.line(chain),
            chain.cycle,
            mismatch=False,
            since=round(chain.seconds, 3),
            left=None if chain.left is None else round(chain.left, 3),
            waiting=_parties(chain.heads)[0],
            alike=_parties(chain.alike),
            path=[[_call(wait) for wait in step] for step in chain.steps[:_PATH]],
            path_left_out=max(0, len(chain.steps) - _PATH),
            state=chain.state,
            ends=[ChainEnd(text, sorted(ranks)) for text, ranks in chain.ends.items()],
            lines=chain.lines,
        )
        for chain in chains[:_MOST]
    ]
    different = [_mismatch(each) for each in graph.mismatches if any(map(shown, each.keys))]
    found = [*different, *told]
    return Waits(found[:_MOST], max(0, len(different) + len(chains) - _MOST), _unread(unread, names))


def wait_lines(found: Waits, most: int = _MOST) -> list[str]:
    """Return the lines of waits.

    Args:
        most: Most lines; one further line counts the others.
    """
    lines = [wait.text for wait in found.waits]
    more = found.waits_left_out + len(lines[most:])
    return [*lines[:most], f"... {more} more"] if more else lines


def unread_lines(found: Waits) -> list[str]:
    """Return a line for each error that nobody has read."""
    return [each.text for each in found.unread]


def _unread(errors: Iterable[UnreadError], names: Mapping[str, str]) -> list[Unread]:
    found = by_key(((each.mesh_id, each.actor, each.endpoint, each.error), each.rank) for each in errors)
    told = []
    for (mesh_id, actor, endpoint, error), raised in list(found.items())[-_UNREAD:]:
        ranks = sorted(set(raised))
        where = f"{names.get(mesh_id) or mesh_id} {_named(fold_ranks(ranks), len(ranks))}"
        text = f"unread error: {actor}.{endpoint}() raised on {where}: {error}"
        told.append(Unread(mesh_id, actor, ranks, len(ranks), endpoint, error, text))
    return told


def _parties(keys: Iterable[Key]) -> list[Party]:
    found = by_key(((mesh_id, actor), rank) for mesh_id, rank, actor in dict.fromkeys(keys))
    return [Party(*whose, sorted({*ranks} - {SCRIPT[1]}), len(ranks)) for whose, ranks in found.items()]


def _mismatch(found: Mismatch) -> WaitChain:
    parties = ", ".join(f"{_named(fold_ranks(ranks), len(ranks))} in {what}" for what, ranks in found.parties.items())
    return WaitChain(
        f"{parties}: {_for(found.seconds, f'mismatch of {found.collective}')}",
        cycle=False,
        mismatch=True,
        since=round(found.seconds, 3),
        left=None,
        waiting=_parties(found.keys)[0],
        alike=[],
        path=[],
        path_left_out=0,
        state=BLOCKED,
        ends=[ChainEnd(f"in {what}", sorted(ranks)) for what, ranks in found.parties.items()],
    )


def _call(wait: Wait) -> CallWait:
    ranks = sorted(rank for rank in wait.ranks if rank != SCRIPT[1])
    return CallWait(wait.mesh_id, wait.actor, ranks, wait.count, wait.endpoint, wait.any, wait.collective, wait.port)


def _ranks(ranks: Iterable[int]) -> str:
    return fold_ranks(rank for rank in ranks if rank != SCRIPT[1])


class _Words:
    """The lines of chains. Actors are named where there is more than one, meshes where actors have the same name."""

    def __init__(self, chains: Sequence[Chain], names: Mapping[str, str]) -> None:
        self._names = names
        waits = (wait for chain in chains for step in chain.steps for wait in step)
        heads = ((mesh_id, actor) for chain in chains for mesh_id, _, actor in chain.heads)
        self._actors = {*((wait.mesh_id, wait.actor) for wait in waits), *heads} - {(SCRIPT[0], SCRIPT[2])}

    def line(self, chain: Chain) -> str:
        """Return the line of a chain."""
        words = [
            f"{self._who(chain.heads)}{_at(chain)} {'waits' if len(chain.heads) == 1 else 'wait'} "
            f"for {self._of(chain.steps[0])}"
        ]
        steps = chain.steps[1:]
        if len(steps) >= _STEPS:
            last = fold_ranks(rank for wait in steps[-2] for rank in wait.ranks)
            words += [f"which waits for {self._of(steps[0])}", f"and so on to rank {last}"]
            steps = steps[-1:]
        words += [f"which waits for {self._of(step)}" for step in steps]
        text = ", ".join(words)
        if chain.cycle:
            port = ", unless another thread receives from the port" if chain.has_port else ""
            text = f"{text}: {_for(chain.seconds, 'cycle')}{port}{_until(chain.left)}"
            return f"{text}{self._others(chain, 'in a similar cycle')}"
        lasts = f", for {chain.seconds:.0f} s" * (chain.heads == [SCRIPT] and chain.seconds >= CERTAIN_SECONDS)
        return f"{text}{_ending(chain)}{self._others(chain, 'alike')}{lasts}"

    def _who(self, keys: Sequence[Key]) -> str:
        if keys[0] == SCRIPT:
            return "the script"
        actor = "" if len(self._actors) == 1 else f"{self._label(keys[0][0], keys[0][2])} "
        return f"{actor}{_named(_ranks(rank for _, rank, _ in keys), len(keys))}"

    def _of(self, step: Iterable[Wait]) -> str:
        return " and ".join(map(self._call, step))

    def _call(self, wait: Wait) -> str:
        if wait.port:
            return self._port(wait)
        more = wait.count - len(wait.ranks)
        whose = _named(fold_ranks(wait.ranks), wait.count) + (f" and {more} more" if more else "")
        if wait.collective:
            return f"{whose} to enter {wait.endpoint}"
        call = f"{self._label(wait.mesh_id, wait.actor)}.{wait.endpoint}()"
        return f"the next {call} of {whose}" if wait.any and wait.count > 1 else f"{call} of {whose}"

    def _port(self, wait: Wait) -> str:
        if not wait.ranks:
            return "a message to a port"
        if next(targets_of(wait)) == SCRIPT:
            return "the script to receive messages from its port"
        label = f"{self._label(wait.mesh_id, wait.actor)} " if wait.actor else ""
        return f"{label}{_named(fold_ranks(wait.ranks), wait.count)} to receive messages from its port"

    def _label(self, mesh_id: str, actor: str) -> str:
        if [other for _, other in self._actors].count(actor) == 1:
            return actor
        return f"{actor}@{self._names.get(mesh_id) or mesh_id}"

    def _others(self, chain: Chain, how: str) -> str:
        if not chain.alike:
            return ""
        ranks = {rank for _, rank, _ in chain.alike}
        return f"; {how}: {_named(fold_ranks(ranks), len(ranks))}"


def _named(ranks: str, count: int) -> str:
    return f"{'rank' if count == 1 else 'ranks'} {ranks}"


def _at(chain: Chain) -> str:
    shown = [*chain.lines[:_ENDS], *(["..."] if len(chain.lines) > _ENDS else [])]
    return f" ({', '.join(shown)})" if shown else ""


def _for(seconds: float, what: str) -> str:
    if seconds >= CERTAIN_SECONDS:
        return f"a {what}, for {seconds:.0f} s"
    return f"a possible {what}, seen for less than {CERTAIN_SECONDS:g} s"


def _until(left: float | None) -> str:
    return "" if left is None else f", until a time-out in {left:.0f} s"


def _ending(chain: Chain) -> str:
    ends = list(chain.ends.items())
    targets = {rank for wait in chain.steps[-1] for rank in wait.ranks}
    if len(ends) == 1 and set(ends[0][1]) == targets:
        return f", {ends[0][0]}"
    told = [f"{fold_ranks(ranks)} {text}" for text, ranks in ends[:_ENDS]]
    return "".join(f"; {each}" for each in [*told, *(["..."] if len(ends) > _ENDS else [])])
