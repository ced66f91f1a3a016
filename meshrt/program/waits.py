"""The graph of waits: which ranks, and whether the script, wait for answers of which ranks. Pure.

A node is an actor of a rank, or the script; an edge is a call that it waits for, or a port that it sends to. If edges
form a cycle, no member of it can go on: an actor serves one message at a time. Two kinds of waits are left out of
cycles: those of a concurrent endpoint, beside which others run, and those that any of several ranks can end. A chain
ends at a concurrent endpoint too, because it is not known whether the others wait for that wait. Who waits for a
message to a port waits for nobody that is known.

Ranks are looked at one after the other. Only waits that have lasted longer than this takes were there at the same time,
and only then a cycle is real: `Chain.seconds` is how long all of it has lasted. What counts is the duration of each
wait, not how long its thread has been seen at one place: stopping a rank in the debugger does not end its wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from meshrt.hooks.facts import Wait

__all__ = ["CERTAIN_SECONDS", "SCRIPT", "Chain", "Key", "Mismatch", "WaitGraph", "Waiter", "members_of", "targets_of"]

#: Mesh id, base rank, actor.
Key = tuple[str, int, str]
#: The key of the script.
SCRIPT: Key = ("", -1, "")
#: Seconds from which a cycle is real, and not an artefact of several looks at a running program.
CERTAIN_SECONDS = 1.0


@dataclass(slots=True)
class Waiter:
    """An actor of a rank, or the script.

    Attributes:
        state: As of a class in `where` (docs/json.md); "" for the script. `WaitGraph.ranks` has the state of ranks that
            have ended or are silent.
        doing: The same in words that follow "of rank 3, ".
        waits: All calls that it waits for.
        beside: It waits in a concurrent endpoint, and serves others meanwhile.
    """

    state: str
    doing: str = ""
    waits: Sequence[Wait] = ()
    beside: bool = False


@dataclass(slots=True)
class Chain:
    """A path through the graph: each step waits for the next.

    Attributes:
        heads: The nodes at its start, which all wait for the same.
        steps: The waits of each step: of the heads, of the nodes that those wait for, and so on.
        cycle: The last nodes wait for the first one.
        ends: What the last nodes do: words -> ranks.
        state: The state of the last nodes if it is the same for all, or ""; "waiting" if they wait themselves.
        alike: Further heads, which wait for others of the same actor in the same way.
        seconds: How long all of it has lasted.
        left: Seconds until the first time-out in it ends it; None: no time-out is known.
        lines: Where in the script its heads wait.
    """

    heads: list[Key]
    steps: list[list[Wait]]
    cycle: bool = False
    ends: dict[str, list[int]] = field(default_factory=dict)
    state: str = ""
    alike: list[Key] = field(default_factory=list)
    seconds: float = 0.0
    left: float | None = None
    lines: Sequence[str] = ()

    @property
    def has_port(self) -> bool:
        """Whether one waits for a port: any thread of the other one may take from that, so a cycle is not certain."""
        return any(wait.port for step in self.steps for wait in step)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of a process group that are in different collectives with the same number: none of these ends.

    Attributes:
        mesh_id, actor: Whose ranks they are.
        collective: Its number and group, ``"collective #12 of dp"``.
        parties: What they are in, as ``"all_reduce"`` or ``"all_reduce of [4]"``, and the base ranks.
        seconds: For how long all of them have been.
    """

    mesh_id: str
    actor: str
    collective: str
    parties: Mapping[str, tuple[int, ...]]
    seconds: float

    @property
    def keys(self) -> list[Key]:
        """All nodes that are in it."""
        return [(self.mesh_id, rank, self.actor) for ranks in self.parties.values() for rank in ranks]


class WaitGraph:
    """All known waits."""

    def __init__(self) -> None:
        self.nodes: dict[Key, Waiter] = {}
        self.mismatches: list[Mismatch] = []
        #: Ranks that have ended or are silent: state and words.
        self.ranks: dict[tuple[str, int], tuple[str, str]] = {}

    def script(self, waits: Sequence[Wait]) -> None:
        """Note what the script waits for."""
        if waits:
            self.nodes[SCRIPT] = Waiter("", waits=waits, beside=True)

    def chains(self, shown: Callable[[Key], bool] = lambda key: True) -> list[Chain]:
        """Return the cycles, then the other chains; each waiting node is in at least one of them.

        Args:
            shown: Whether the waits of a node are reported.
        """
        waiting = {key: node for key, node in sorted(self.nodes.items()) if node.waits and key[:2] not in self.ranks}
        cycles = _cycles(
            {key: [target for wait in _holding(node) for target in targets_of(wait)] for key, node in waiting.items()}
        )
        inside = {key for cycle in cycles for key in cycle}
        found = [self._cycle(cycle) for cycle in cycles if any(map(shown, cycle))]
        return [*_folded(found), *_folded(_merged(self._leading(waiting, inside, shown)))]

    def _leading(
        self, waiting: Mapping[Key, Waiter], inside: set[Key], shown: Callable[[Key], bool]
    ) -> Iterator[Chain]:
        wanted = {target for node in waiting.values() for wait in node.waits for target in targets_of(wait)}
        covered = set(inside)
        # Nodes that are not waited for come first: their chains cover the others.
        for key in sorted(waiting, key=lambda key: key in wanted):
            if key not in covered and shown(key):
                yield self._chain(key, waiting, inside, covered)

    def _cycle(self, cycle: list[Key]) -> Chain:
        first = cycle.index(min(cycle))
        cycle = cycle[first:] + cycle[:first]
        waits = []
        for key, target in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            wait = next(wait for wait in _holding(self.nodes[key]) if target in targets_of(wait))
            waits.append(replace(wait, ranks=(target[1],), count=1, any=False))
        return Chain([cycle[0]], [[wait] for wait in waits], cycle=True, seconds=_least(waits), left=_first_end(waits))

    def _chain(self, head: Key, waiting: Mapping[Key, Waiter], inside: set[Key], covered: set[Key]) -> Chain:
        waits = waiting[head].waits
        chain = Chain([head], [], seconds=_least(waits), lines=sorted({wait.line for wait in waits if wait.line}))
        key = head
        while True:
            covered.add(key)
            waits = _together(waiting[key].waits)
            chain.steps.append(waits)
            targets = [target for wait in waits for target in targets_of(wait)]
            if len(targets) != 1 or targets[0] in inside or targets[0] in covered:
                break
            key = targets[0]
            if key not in waiting or waiting[key].beside:
                break
        states = set()
        for target in targets:
            state, words = self._end(target, waiting, inside)
            states.add(state)
            if words:
                chain.ends.setdefault(words, []).append(target[1])
        chain.state = states.pop() if len(states) == 1 else ""
        return chain

    def _end(self, key: Key, waiting: Mapping[Key, Waiter], inside: set[Key]) -> tuple[str, str]:
        if key in inside:
            return "waiting", "in a cycle"
        if key in waiting:
            beside = " in a concurrent endpoint, which blocks no other call" if waiting[key].beside else ""
            return "waiting", f"also waiting{beside}"
        if key[:2] in self.ranks:
            return self.ranks[key[:2]]
        node = self.nodes.get(key)
        return ("", "") if node is None else (node.state, node.doing)


def targets_of(wait: Wait) -> Iterator[Key]:
    """Return the nodes whose answers a wait is for."""
    for rank in wait.ranks:
        yield wait.mesh_id, rank, wait.actor


def _holding(node: Waiter) -> list[Wait]:
    """Return the waits in which a node blocks others, as long as any one node that it waits for does."""
    return [] if node.beside else [wait for wait in node.waits if not wait.any or wait.count == 1]


def _least(waits: Iterable[Wait]) -> float:
    return min(wait.seconds for wait in waits)


def _first_end(waits: Iterable[Wait | Chain]) -> float | None:
    return min((wait.left for wait in waits if wait.left is not None), default=None)


def _together(waits: Iterable[Wait]) -> list[Wait]:
    """Return the waits of a gather merged: one wait for each endpoint."""
    found: dict[tuple[str, str, str, bool, bool, bool], set[int]] = {}
    counts: dict[tuple[str, str, str, bool, bool, bool], int] = {}
    for wait in waits:
        key = (wait.mesh_id, wait.actor, wait.endpoint, wait.any, wait.collective, wait.port)
        found.setdefault(key, set()).update(wait.ranks)
        counts[key] = counts.get(key, 0) + wait.count - len(wait.ranks)
    return [Wait(*key[:3], tuple(sorted(ranks)), len(ranks) + counts[key], *key[3:]) for key, ranks in found.items()]


def _cycles(edges: Mapping[Key, Sequence[Key]]) -> list[list[Key]]:
    """Return cycles without a common node; at least one if the graph has any."""
    found: list[list[Key]] = []
    done: set[Key] = set()
    for start in edges:
        path: list[Key] = []
        ways: list[Iterator[Key]] = []
        within: set[Key] = set()
        target: Key | None = start
        while True:
            if target is None:
                within.remove(path[-1])
                done.add(path.pop())
                ways.pop()
            elif target in within:
                cut = path.index(target)
                found.append(path[cut:])
                done.update(path[cut:])
                within.difference_update(path[cut:])
                del path[cut:], ways[cut:]
            elif target in edges and target not in done:
                path.append(target)
                within.add(target)
                ways.append(iter(edges[target]))
            if not path:
                break
            target = next(ways[-1], None)
    return found


def _merged(chains: Iterable[Chain]) -> list[Chain]:
    """Return the chains, with those that differ only in their heads merged into one."""
    found: dict[tuple[object, ...], Chain] = {}
    for chain in chains:
        head = chain.heads[0]
        words = tuple((text, tuple(ranks)) for text, ranks in chain.ends.items())
        key = (head[0], head[2], tuple(map(tuple, chain.steps)), words)
        known = found.setdefault(key, chain)
        if known is not chain:
            known.heads += chain.heads
            known.seconds = min(known.seconds, chain.seconds)
    return list(found.values())


def _folded(chains: Iterable[Chain]) -> list[Chain]:
    """Return the chains; where several differ only in the numbers of ranks, the first one stands for the others."""
    found: dict[tuple[object, ...], Chain] = {}
    for chain in chains:
        names = tuple(
            tuple((wait.mesh_id, wait.actor, wait.endpoint, wait.any) for wait in step) for step in chain.steps
        )
        key = (chain.heads[0][0], chain.heads[0][2], names, tuple(chain.ends), chain.cycle, chain.has_port)
        known = found.setdefault(key, chain)
        if known is not chain:
            known.alike += members_of(chain)
            known.seconds = min(known.seconds, chain.seconds)
            known.left = _first_end((known, chain))
    return list(found.values())


def members_of(chain: Chain) -> list[Key]:
    """Return all nodes of a cycle; of another chain, its heads."""
    if not chain.cycle:
        return chain.heads
    return [target for step in chain.steps for wait in step for target in targets_of(wait)]
