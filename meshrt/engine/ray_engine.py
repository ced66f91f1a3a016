"""Agents on the nodes of a Ray cluster: a placement group with a bundle for each host, and an actor on each bundle.

An actor starts the host agent of its node and passes on what that writes (`meshrt.engine.ray_host`). The invitation
travels as an argument of a call of the actor, which Ray stores nowhere. The agent then joins as one of ssh does: Ray
carries neither calls nor data. The actor, the agent and its ranks end together, whichever ends first.

A lost bundle stays in its group, and Ray places it again when it has noticed the loss, which takes longer than here.
Until then a replacement has a new group, on other nodes; the lost bundle is used if it is placed before that.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meshrt.engine.ray_agent import RayAgent
from meshrt.engine.ray_cluster import Group, connect, nodes
from meshrt.engine.ray_needs import Resources, bundle_of, describe, hosts_of, missing
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Placed, Program, Request
from meshrt.selection import counted

__all__ = ["RayEngine"]

_APART = "STRICT_SPREAD"
_STRATEGIES = (_APART, "SPREAD", "PACK", "STRICT_PACK")
#: Seconds after which it is first said what is waited for, and again after twice the time.
_QUIET = 5.0


@dataclass(frozen=True)
class RayEngine:
    """One agent per host, each on a bundle of a Ray placement group.

    Args:
        strategy: Ray's word for how hosts are divided among nodes: "STRICT_SPREAD" (each host is another node),
            "SPREAD", "PACK" or "STRICT_PACK".
        resources: What each host needs, beside or in place of a CPU for each rank, and, where the cluster has GPUs, a
            GPU for each of ``gpus``: ``{"CPU": 4, "TPU": 1}``.
        runtime_env: Ray's environment for the agents and their ranks: ``{"pip": [...]}``; that of the job by default.
        timeout: Seconds until all agents have joined.
    Raises:
        UsageError: An argument is invalid.
    """

    strategy: str = "STRICT_SPREAD"
    resources: Resources = field(default_factory=dict, hash=False)
    runtime_env: Mapping[str, object] | None = field(default=None, hash=False)
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if self.strategy not in _STRATEGIES:
            raise UsageError(f"strategy is one of {', '.join(_STRATEGIES)}, not {self.strategy!r}")
        if not self.timeout > 0:
            raise UsageError(f"timeout is a positive number of seconds, not {self.timeout!r}")

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """Return the agents of a mesh; a replaced host has the place of the lost one."""
        connect()
        present = nodes()
        hosts = hosts_of(request, self.resources, present)
        agents = [each for each in living if isinstance(each, RayAgent)]
        if len(agents) < hosts:
            bundle = bundle_of(request, hosts, self.resources, present)
            agents += self._add(program, agents, hosts - len(agents), bundle)
        return sorted(agents, key=lambda agent: agent.place)[:hosts]

    def _add(self, program: Program, living: Sequence[RayAgent], count: int, bundle: Resources) -> list[RayAgent]:
        """Start agents, and wait until they have joined."""
        waiting = _Waiting(program.announce, self.timeout)
        groups = list(dict.fromkeys(agent.group for agent in living))
        taken: list[tuple[Group, int]] = []
        new: list[RayAgent] = []
        try:
            taken += self._bundles(program, groups, count, bundle, waiting)
            while taken:
                new.append(RayAgent(*taken[0], program, self.runtime_env))
                taken.pop(0)
            for state, said in (RayAgent.has_started, "started"), (RayAgent.has_joined, "joined the program"):
                while late := [agent for agent in new if not state(agent)]:
                    waiting.check(functools.partial(_late, late, said))
            _tell_apart([*living, *new])
        except BaseException:
            for agent in new:
                agent.undo()
            _release(taken)
            raise
        return new

    def _bundles(
        self, program: Program, groups: list[Group], count: int, bundle: Resources, waiting: _Waiting
    ) -> list[tuple[Group, int]]:
        """Return bundles that Ray has placed: those whose agents were lost, and those of a new group."""
        taken = _take(groups, count)
        if len(taken) < count:
            apart = [node for group in groups for node in group.places().values()] if self.strategy == _APART else []
            groups = [*groups, Group(f"meshrt-{program.new_mark()}", bundle, count - len(taken), self.strategy, apart)]
            taken += _take(groups[-1:], count)
        try:
            for group in dict.fromkeys(group for group, _ in taken):
                while not group.ready():
                    waiting.check(functools.partial(self._unplaced, group))
                    # Ray may have noticed a loss, and have placed that bundle where the new one was to be.
                    again = _take([other for other in groups if other is not group and other.ready()], count)
                    if len(again) == count:
                        _release(taken)
                        return again
                    _release(again)
        except BaseException:
            _release(taken)
            raise
        return taken

    def _unplaced(self, group: Group) -> str:
        placed = group.places()
        used = {*group.apart, *(placed.values() if self.strategy == _APART else ())}
        count = group.hosts - len(placed)
        why = missing(group.bundle, count, self.strategy, [node for node in nodes() if node.identity not in used])
        what = f"Ray has not placed {counted(count, 'host')} with {describe(group.bundle)} each"
        return f"{what}: {'; '.join(why) or 'its nodes have these resources free, see `ray status`'}"


def _take(groups: Sequence[Group], count: int) -> list[tuple[Group, int]]:
    """Take free bundles, at most so many."""
    taken: list[tuple[Group, int]] = []
    for group in groups:
        taken += [(group, index) for index in group.take(count - len(taken))]
    return taken


def _release(taken: Sequence[tuple[Group, int]]) -> None:
    for group, index in taken:
        group.release(index)


def _tell_apart(agents: Sequence[RayAgent]) -> None:
    """Have the hosts of one node different names."""
    names: set[str] = set()
    for agent in agents:
        host, number = agent.host, 0
        while agent.host in names:
            number += 1
            agent.host = f"{host}~{number}"
        names.add(agent.host)


class _Waiting:
    """What is waited for is said now and then, and is an error in the end.

    Args:
        announce: Takes a line.
        seconds: For all of it.
    """

    def __init__(self, announce: Callable[[str], None], seconds: float) -> None:
        self._announce = announce
        self._seconds = seconds
        self._begun = time.monotonic()
        self._next = _QUIET

    def check(self, what: Callable[[], str]) -> None:
        """Say what is waited for, if it is time for that. Raises SpawnError: it is not waited for any longer."""
        passed = time.monotonic() - self._begun
        if passed >= self._seconds:
            raise SpawnError(f"{what()}; RayEngine(timeout={self._seconds:g}) has expired")
        if passed >= self._next:
            self._next = 2 * passed
            self._announce(f"{what()} (for {passed:.0f} s, at most {self._seconds:g} s)")


def _late(agents: Sequence[RayAgent], what: str) -> str:
    names = ", ".join(agent.name for agent in agents)
    return f"the agent of {names} has not {what}" if len(agents) == 1 else f"the agents of {names} have not {what}"
