"""Who has not entered a collective that others are in, and who is in another one: from the facts of all ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from meshrt.collectives.facts import GroupFacts, WorldFacts, members_of
from meshrt.hooks.facts import Wait
from meshrt.program.waits import CERTAIN_SECONDS, Mismatch, WaitGraph

__all__ = ["Late", "add_collectives", "late_for"]

#: Most ranks that one wait names.
_MOST = 64
#: Operations for which all ranks have tensors of the same sizes.
_SAME_SIZES = frozenset({"all_reduce", "allreduce", "broadcast", "reduce"})


@dataclass(frozen=True, slots=True)
class Late:
    """Ranks that have not entered a collective.

    Attributes:
        collective: As ``"collective #12 of dp"``.
        ranks: Base ranks.
    """

    collective: str
    ranks: tuple[int, ...]


def late_for(world: WorldFacts, others: Mapping[int, WorldFacts]) -> Late | None:
    """Return who has entered fewer collectives of a group than a rank that has given up in one; None: nobody.

    Args:
        world: The facts of that rank, when it failed.
        others: Those of ranks that have not failed, by base rank.
    """
    others = {base: other for base, other in others.items() if other.store == world.store}
    if not _is_one([world, *others.values()]):
        return None
    for index, group in enumerate(world.groups):
        if group.unsure or world.last not in (-1, index):
            continue
        known = [
            (base, each.entered)
            for base, other in others.items()
            for each in other.groups
            if (each.key, each.ranks) == (group.key, group.ranks)
        ]
        late = tuple(sorted(base for base, entered in known if entered < group.entered))
        if late:
            return Late(f"collective #{group.entered} of {group.name}", late)
    return None


def add_collectives(graph: WaitGraph, worlds: Mapping[str, Mapping[int, WorldFacts]]) -> None:
    """Add to the waits which ranks wait for which others to enter their collective; once or again.

    Args:
        worlds: The facts of ranks, by mesh and base rank.
    """
    graph.mismatches.clear()
    for mesh_id, ranks in worlds.items():
        without = {rank for mesh, rank in graph.ranks if mesh == mesh_id}
        for store in sorted({world.store for world in ranks.values()}):
            members = {rank: world for rank, world in ranks.items() if world.store == store}
            if not _is_one(list(members.values())):
                continue
            waits, mismatches = _compare(mesh_id, members, without)
            graph.mismatches += mismatches
            for rank, wait in waits.items():
                node = graph.nodes.get((mesh_id, rank, wait.actor))
                if node is not None:
                    node.waits = [*(each for each in node.waits if not each.collective), wait]


def _is_one(worlds: Sequence[WorldFacts]) -> bool:
    """Whether these may be the ranks of one world: no two have the same number."""
    return len({world.rank for world in worlds}) == len(worlds)


def _compare(
    mesh_id: str, worlds: Mapping[int, WorldFacts], without: Set[int]
) -> tuple[dict[int, Wait], list[Mismatch]]:
    """Return what each rank of a mesh waits for, by base rank, and the mismatches.

    Args:
        without: Base ranks that have ended, or do not answer: they enter nothing.
    """
    waits: dict[int, Wait] = {}
    mismatches: list[Mismatch] = []
    base_of = {world.rank: base for base, world in worlds.items()}
    if all(world.rank == base for base, world in worlds.items()):  # then others are numbered so, too
        base_of.update({rank: rank for rank in without if rank not in base_of})
    inside: dict[tuple[str, str, int], dict[int, GroupFacts]] = {}
    entered: dict[tuple[str, str], dict[int, int]] = {}
    numbers: dict[tuple[str, str], set[int]] = {}
    for base, world in worlds.items():
        for index, group in enumerate(world.groups):
            entered.setdefault((group.key, group.ranks), {})[base] = group.entered
            if world.actor and index == world.blocked and group.number:
                inside.setdefault((group.key, group.ranks, group.number), {})[base] = group
                numbers.setdefault((group.key, group.ranks), set()).add(group.number)
    for (key, text, number), members in inside.items():
        seconds = min(group.seconds for group in members.values())
        if seconds < CERTAIN_SECONDS:
            continue
        if any(group.unsure for group in members.values()) and len(numbers[key, text]) > 1:
            continue  # ranks cannot be in different ones for long: it is the numbers that differ
        parties = _parties(members)
        if len(parties) > 1:
            base, group = next(iter(members.items()))
            named = f"collective #{number} of {group.name}"
            mismatches.append(Mismatch(mesh_id, worlds[base].actor, named, parties, seconds))
            continue
        others = entered[key, text]
        bases = (base_of[rank] for rank in members_of(text) if rank in base_of)
        late = [base for base in bases if others.get(base, 0) < number]
        for base, group in members.items() if late else ():
            actor = worlds[base].actor
            ranks = tuple(late[:_MOST])
            wait = Wait(mesh_id, actor, group.collective, ranks, len(late), collective=True, seconds=group.seconds)
            waits[base] = wait
    return waits, mismatches


def _parties(members: Mapping[int, GroupFacts]) -> dict[str, tuple[int, ...]]:
    """Return what ranks are in, in words, and which they are; one party if all of them fit together."""
    operations = {group.operation for group in members.values()}
    sizes = {group.sizes for group in members.values()}
    sized = len(operations) == 1 and operations <= _SAME_SIZES and len(sizes) > 1 and "" not in sizes
    parties: dict[str, list[int]] = {}
    for base, group in sorted(members.items()):
        parties.setdefault(f"{group.operation} of {group.sizes}" if sized else group.operation, []).append(base)
    return {words: tuple(bases) for words, bases in parties.items()}
