"""What blocks ranks that do not answer: the end of their waits. Pure.

Waits lead from a rank to those that it waits for, from these to those that they wait for, and so on. If the last ranks
wait for each other, and have done so for longer than looking at them takes, this cycle is what blocks the first one.
The same holds if the last ranks were stopped by the user. Other causes (a rank that computes, a lock, a collective of a
library) do not show in the waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshrt.program.waits import CERTAIN_SECONDS, Chain, Key, WaitGraph, members_of, targets_of
from meshrt.selection import fold_ranks

__all__ = ["CYCLE", "STOPPED", "Standstill", "reached", "standstill"]

#: Kinds of a standstill.
CYCLE, STOPPED = "cycle", "stopped"
#: Most ranks that are named one by one.
_NAMED = 8


@dataclass(frozen=True, slots=True)
class Standstill:
    """What blocks some ranks.

    Attributes:
        kind: `CYCLE`: ranks wait for each other. `STOPPED`: the user has stopped ranks in the debugger.
        text: The same in words, with the ranks: "worker ranks 4, 7 and 10 wait for each other, for 6 s".
        ranks: The ranks in the cycle, or the stopped ones, by mesh id.
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
    found = reached(graph, keys)
    words = _Words(graph, names)
    chains = graph.chains(found.__contains__)
    cycles = [chain for chain in chains if chain.cycle and chain.seconds >= CERTAIN_SECONDS]
    if cycles:
        ranks = [key for chain in cycles for key in {*members_of(chain), *chain.alike}]
        return Standstill(CYCLE, words.cycles(cycles), _by_mesh(ranks), _by_mesh(found))
    stopped = sorted(key for key in found if words.is_stopped(key))
    if stopped:
        return Standstill(STOPPED, words.stopped(stopped), _by_mesh(stopped), _by_mesh(found))
    return None


def _by_mesh(keys: Iterable[Key]) -> dict[str, tuple[int, ...]]:
    ranks: dict[str, set[int]] = {}
    for mesh_id, rank, _ in keys:
        ranks.setdefault(mesh_id, set()).add(rank)
    return {mesh_id: tuple(sorted(members)) for mesh_id, members in ranks.items()}


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

    def stopped(self, keys: list[Key]) -> str:
        """Name the stopped actors, and where they are if that is one place."""
        places = {self._graph.nodes[key].doing for key in keys}
        doing = places.pop() if len(places) == 1 else "stopped in the debugger"
        return f"{self._who(keys)} {'is' if len(keys) == 1 else 'are'} {doing}"

    def _who(self, keys: Iterable[Key]) -> str:
        ranks: dict[tuple[str, str], list[int]] = {}
        for mesh_id, rank, actor in keys:
            ranks.setdefault((mesh_id, actor), []).append(rank)
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
