"""What the hosts of a mesh need of a Ray cluster, and what of that it does not have. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshrt.errors import SpawnError
from meshrt.mesh.engine import Request
from meshrt.selection import counted

__all__ = ["Node", "Resources", "bundle_of", "describe", "hosts_of", "missing"]

#: Amount by resource, as Ray names them: ``{"CPU": 8, "GPU": 8}``.
Resources = Mapping[str, float]


@dataclass(frozen=True)
class Node:
    """A node of a Ray cluster that lives.

    Attributes:
        identity: Ray's number of it.
        host: Its host name.
        total: What it has.
        free: What of that nobody uses now.
    """

    identity: str
    host: str
    total: Resources
    free: Resources


def bundle_of(request: Request, hosts: int, given: Resources, nodes: Sequence[Node]) -> dict[str, float]:
    """Return what each host needs: a CPU for each rank, a GPU for each of ``gpus``, and what was given in their place.

    A cluster without any GPU gives none: ``gpus`` is a dimension of a mesh there, as on one machine.
    """
    bundle: dict[str, float] = {"CPU": -(-request.ranks // hosts)}
    if request.gpus is not None and any(node.total.get("GPU") for node in nodes):
        gpus = request.gpus if request.hosts is not None else -(-request.gpus // hosts)
        bundle["GPU"] = gpus
    bundle.update(given)
    return {name: amount for name, amount in bundle.items() if amount}


def hosts_of(request: Request, given: Resources, nodes: Sequence[Node]) -> int:
    """Return how many hosts a mesh has: as many as it says, or as few as it needs.

    Raises:
        SpawnError: It does not say, and no node can have its share, whatever their number.
    """
    if request.hosts is not None:
        return request.hosts
    for hosts in range(1, request.ranks + 1):
        whole = request.gpus is None or request.gpus % hosts == 0
        if request.ranks % hosts == 0 and whole:
            bundle = bundle_of(request, hosts, given, nodes)
            if any(_times(bundle, node.total) for node in nodes):
                return hosts
    raise SpawnError(
        f"no node of the Ray cluster can run a share of {request.ranks} ranks: set the number of hosts with hosts=, "
        "and what each of them needs with RayEngine(resources=...)"
    )


def missing(bundle: Resources, hosts: int, strategy: str, nodes: Sequence[Node]) -> list[str]:
    """Return a text for each resource that keeps Ray from placing hosts; []: none does by itself.

    Args:
        bundle: What each host needs.
        hosts: How many there are.
        strategy: Of the placement group.
        nodes: Those that may be used.
    """
    texts = []
    for name, amount in bundle.items():
        need = {name: amount}
        free = _room(need, strategy, [node.free for node in nodes])
        if free < hosts:
            total = _room(need, strategy, [node.total for node in nodes])
            never = f"; with nothing else running, for {total}" if total < hosts else ""
            texts.append(f"{name} {amount:g} is free for {free} of {counted(hosts, 'host')}{never}")
    if not texts:
        free = _room(bundle, strategy, [node.free for node in nodes])
        if free < hosts:
            texts.append(f"all these resources on one node are free for {free} of {counted(hosts, 'host')}")
    return texts


def describe(bundle: Resources) -> str:
    """Return resources as text."""
    return ", ".join(f"{name} {amount:g}" for name, amount in bundle.items())


def _room(need: Resources, strategy: str, nodes: Sequence[Resources]) -> int:
    """Return for how many hosts that is enough."""
    counts = [_times(need, node) for node in nodes]
    if strategy == "STRICT_SPREAD":
        return sum(count > 0 for count in counts)
    return max(counts, default=0) if strategy == "STRICT_PACK" else sum(counts)


def _times(need: Resources, has: Resources) -> int:
    return min((int(has.get(name, 0.0) / amount) for name, amount in need.items()), default=0)
