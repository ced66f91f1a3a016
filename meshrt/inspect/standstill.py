"""What blocks ranks that do not answer: the end of their waits. Pure.

Waits lead from a rank to those that it waits for, from these to those that they wait for, and so on. If the last ranks
wait for each other, and have done so for longer than looking at them takes, this cycle is what blocks the first one.
The same holds if the last ranks were stopped by the user. Ranks that wait in a collective of torch.distributed are
blocked by those that are in another one of the same number, or that have not entered it. Ranks that all wait for
answers of others, which wait for nobody, are probably blocked by these. Other causes (one of them computes, a lock) do
not show in the waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshrt.hooks.facts import Wait
from meshrt.program.groups import by_key, rank_sets
from meshrt.program.waits import CERTAIN_SECONDS, Chain, Key, Mismatch, WaitGraph, members_of, targets_of
from meshrt.selection import fold_ranks

__all__ = ["CYCLE", "LATE", "MISMATCH", "OWES", "STOPPED", "Standstill", "reached", "standstill"]

#: Kinds of a standstill.
CYCLE, MISMATCH, LATE, STOPPED, OWES = "cycle", "mismatch", "late", "stopped", "owes"
#: Most ranks that are named one by one.
_NAMED = 8


@dataclass(frozen=True, slots=True)
class Standstill:
    """What blocks some ranks.

    Attributes:
        kind: `CYCLE`: ranks wait for each other. `MISMATCH`: ranks are in different collectives. `LATE`: ranks have not
            entered a collective. `STOPPED`: the user has stopped ranks in the debugger. `OWES`: ranks have not answered
            calls, and wait for nobody.
        text: The same in words, with the ranks: "worker ranks 4, 7 and 10 wait for each other, for 6 s".
        ranks: The ranks in the cycle or the mismatch, or those that block the others, by mesh id.
        reached: All ranks that the waits lead from and to, by mesh id.
    """

    kind: str
    text: str
    ranks: Mapping[str, tuple[int, ...]]
    reached: Mapping[str, tuple[int, ...]]


def reached(graph: WaitGraph, keys: Iterable[Key]) -> set[Key]:
    """Return all nodes that waits lead to from ``keys``, and ``keys`` themselves."""
    found = set(keys)
    waiting = list(found)
    while waiting:
        node = graph.nodes.get(waiting.pop())
        for wait in node.waits if node is not None else ():
            further = [target for target in targets_of(wait) if target not in found]
            found.update(further)
            waiting += further
    return found


def standstill(graph: WaitGraph, names: Mapping[str, str], keys: Iterable[Key]) -> Standstill | None:
    """Return what blocks actors of ranks that do not answer; None: their waits do not show it.

    Args:
        names: The names of meshes, by id.
        keys: The actors that do not answer.
    """
    asked = set(keys)
    found = reached(graph, asked)
    words = _Words(graph, names)
    for mismatch in graph.mismatches:
        if found.intersection(mismatch.keys):
            everybody = found.union(mismatch.keys)
            return Standstill(MISMATCH, words.mismatch(mismatch), _by_mesh(mismatch.keys), _by_mesh(everybody))
    chains = graph.chains(found.__contains__)
    cycles = [chain for chain in chains if chain.cycle and not chain.has_port and chain.seconds >= CERTAIN_SECONDS]
    if cycles:
        ranks = [key for chain in cycles for key in {*members_of(chain), *chain.alike}]
        return Standstill(CYCLE, words.cycles(cycles), _by_mesh(ranks), _by_mesh(found))
    stopped = sorted(key for key in found if words.is_stopped(key))
    if stopped:
        return Standstill(STOPPED, words.stopped(stopped), _by_mesh(stopped), _by_mesh(found))
    awaited = _late(graph, found)
    if awaited is not None:
        wait, late = awaited
        return Standstill(LATE, words.late(wait, late), _by_mesh(late), _by_mesh(found))
    owed = _owed(graph, asked, found)
    if owed is not None:
        wait, owing = owed
        return Standstill(OWES, words.owes(wait, owing), _by_mesh(owing), _by_mesh(found))
    return None


def _owed(graph: WaitGraph, asked: set[Key], found: set[Key]) -> tuple[Wait, list[Key]] | None:
    """Return the longest wait for ranks that wait for nobody, and these; None: some of ``asked`` wait for nobody."""
    if not all(_waits(graph, key) for key in asked):
        return None
    ends = [key for key in sorted(found - asked) if not _waits(graph, key)]
    if not ends or not all(_works(graph, key) for key in ends):
        return None
    waits = [wait for key in sorted(found) if key in graph.nodes for wait in graph.nodes[key].waits]
    owed = [wait for wait in waits if not (wait.port or wait.any) and set(targets_of(wait)) & set(ends)]
    longest = max(owed, key=lambda wait: wait.seconds, default=None)
    if longest is None or longest.seconds < CERTAIN_SECONDS:
        return None
    return longest, [key for key in ends if key in targets_of(longest)]


def _works(graph: WaitGraph, key: Key) -> bool:
    """Whether an actor has a message that it has not answered, and its rank can be looked at."""
    node = graph.nodes.get(key)
    return node is not None and node.state not in ("", "idle", "waiting") and key[:2] not in graph.ranks


def _late(graph: WaitGraph, found: Iterable[Key]) -> tuple[Wait, list[Key]] | None:
    """Return the longest wait for ranks to enter a collective, and those of them that wait for nobody themselves."""
    longest: tuple[Wait, list[Key]] | None = None
    for key in sorted(found):
        node = graph.nodes.get(key)
        for wait in node.waits if node is not None else ():
            if wait.collective and wait.seconds >= CERTAIN_SECONDS:
                late = [target for target in targets_of(wait) if not _waits(graph, target)]
                if late and (longest is None or wait.seconds > longest[0].seconds):
                    longest = wait, late
    return longest


def _waits(graph: WaitGraph, key: Key) -> bool:
    node = graph.nodes.get(key)
    return node is not None and bool(node.waits) and key[:2] not in graph.ranks


def _by_mesh(keys: Iterable[Key]) -> dict[str, tuple[int, ...]]:
    return {mesh_id: tuple(ranks) for mesh_id, ranks in rank_sets((mesh, rank) for mesh, rank, _ in keys).items()}


class _Words:
    def __init__(self, graph: WaitGraph, names: Mapping[str, str]) -> None:
        self._graph = graph
        self._names = names

    def is_stopped(self, key: Key) -> bool:
        node = self._graph.nodes.get(key)
        return node is not None and node.state == "stopped" and key[:2] not in self._graph.ranks

    def cycles(self, cycles: list[Chain]) -> str:
        """Describe the first cycle, and name the members of the others."""
        first = cycles[0]
        members = members_of(first)
        text = f"{self._who(members)} {'wait for each other' if len(members) > 1 else 'waits for itself'}"
        text += f", for {first.seconds:.0f} s"
        if first.left is not None:
            text += f", until a time-out in {first.left:.0f} s"
        others = [*first.alike, *(key for chain in cycles[1:] for key in (*members_of(chain), *chain.alike))]
        return f"{text}; in other cycles: {self._who(others)}" if others else text

    def mismatch(self, found: Mismatch) -> str:
        """Say which ranks are in what."""
        label = self._label(found.mesh_id, found.actor)
        parties = [f"{label} {_ranks(list(ranks))} in {what}" for what, ranks in found.parties.items()]
        return f"{found.collective} is not the same on all ranks, for {found.seconds:.0f} s: {', '.join(parties)}"

    def late(self, wait: Wait, late: list[Key]) -> str:
        """Say who has not entered a collective, and where they are if that is one place."""
        return self._have_not(late, f"entered {wait.endpoint}, in which others have waited for {wait.seconds:.0f} s")

    def owes(self, wait: Wait, owing: list[Key]) -> str:
        """Say who has not answered, and where they are if that is one place."""
        return self._have_not(owing, f"answered {wait.actor}.{wait.endpoint}() for {wait.seconds:.0f} s")

    def _have_not(self, keys: list[Key], done: str) -> str:
        has = "has" if len(keys) == 1 else "have"
        text = f"{self._who(keys)} {has} not {done}"
        places = {self._place(key) for key in keys} - {""}
        return f"{text}: {places.pop()}" if len(places) == 1 else text

    def _place(self, key: Key) -> str:
        if key[:2] in self._graph.ranks:
            return self._graph.ranks[key[:2]][1]
        return self._graph.nodes[key].doing if key in self._graph.nodes else ""

    def stopped(self, keys: list[Key]) -> str:
        """Name the stopped actors, and where they are if that is one place."""
        places = {self._graph.nodes[key].doing for key in keys}
        doing = places.pop() if len(places) == 1 else "stopped in the debugger"
        return f"{self._who(keys)} {'is' if len(keys) == 1 else 'are'} {doing}"

    def _who(self, keys: Iterable[Key]) -> str:
        ranks = by_key(((mesh_id, actor), rank) for mesh_id, rank, actor in keys)
        return " and ".join(f"{self._label(*whose)} {_ranks(members)}" for whose, members in ranks.items())

    def _label(self, mesh_id: str, actor: str) -> str:
        same = {key[0] for key in self._graph.nodes if key[2] == actor}
        return actor if same <= {mesh_id} else f"{actor}@{self._names.get(mesh_id) or mesh_id}"


def _ranks(ranks: list[int]) -> str:
    *most, last = sorted(ranks)
    if not most:
        return f"rank {last}"
    if len(ranks) > _NAMED:
        return f"ranks {fold_ranks(ranks)}"
    return f"ranks {', '.join(map(str, most))} and {last}"
