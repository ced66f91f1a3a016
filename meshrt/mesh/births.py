"""The requests to a host agent to start ranks, in as many messages as the limit of a control link requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from meshrt.errors import ProtocolError, UsageError
from meshrt.hooks.operations import Data, Operation, body_of
from meshrt.host.limits import GPUS
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.spec import MeshSpec
from meshrt.transport.process import INCARNATION
from meshrt.wire.control import LENGTH_MAX, control_frame
from meshrt.wire.frames import CONTROL_MAX
from meshrt.wire.operations import LogLevels, Stopped
from meshrt.wire.tree import Spawn

__all__ = ["Births", "spawn_frames"]


class Births:
    """Makes the requests to agents, for a rank's first birth and for each restart. Any thread.

    Args:
        at_birth: Functions that return the first operations of each rank (`meshrt.hooks.services.RootServices`).
        restarts: Knows which actors a rank has again.
        levels: Returns those of the script's loggers for ranks of a mesh. The records of ranks are sent to it, but
            those of a script that runs on all ranks, which does its own logging.
    """

    def __init__(
        self,
        at_birth: Sequence[Callable[[], Sequence[Operation[Data]]]],
        restarts: Restarts,
        levels: Callable[[MeshRecord], LogLevels],
    ) -> None:
        self._at_birth = at_birth
        self._restarts = restarts
        self._levels = levels

    def frames(self, spec: MeshSpec, record: MeshRecord, ranks: Sequence[int]) -> list[bytes]:
        """Return the messages that ask for these ranks of one agent. Raises UsageError: they are too long."""
        operations = [operation for given in self._at_birth for operation in given()]
        if not spec.script:
            operations.append(self._levels(record))
        for rank in record.incarnations.keys() & set(ranks):  # one at a time
            again = self._restarts.actors(record.mesh_id, rank)
            gone = [actor for actor, known in record.actors.items() if known.had_by(rank) and actor not in again]
            operations.append(Stopped(gone))
        common = Spawn(
            mesh=record.mesh_id,
            name=record.name,
            labels=list(spec.extent.labels),
            sizes=list(spec.extent.sizes),
            common_env=dict(spec.env),
            preload=list(spec.preload),
            operations=[(each.name(), body_of(each)) for each in operations],
            meeting=spec.meeting,
        )
        env = {rank: dict(spec.rank_env.get(rank, {})) for rank in ranks}
        if spec.own_devices:
            for rank in ranks:  # the agent makes a device of its host of the number
                env[rank][GPUS] = str(record.place_on_host(rank))
        for rank in record.incarnations.keys() & env.keys():
            env[rank][INCARNATION] = str(record.incarnations[rank])
        return spawn_frames(common, ranks, {rank: own for rank, own in env.items() if own})


def spawn_frames(common: Spawn, ranks: Sequence[int], rank_env: Mapping[int, Mapping[str, str]]) -> list[bytes]:
    """Return the messages that ask an agent for some ranks of a mesh, to be sent in one piece.

    One process preloads modules for all of them: the agent waits for the last message then (``more`` is false in it).

    Args:
        common: The fields that are the same for all; ``ranks``, ``env`` and ``more`` are set here.
        ranks: Base ranks.
        rank_env: The environment of those that have one of their own.
    Raises:
        UsageError: The request for a single rank is too long; one agent cannot have so many ranks.
    """
    if len(ranks) > LENGTH_MAX:
        raise UsageError(f"{len(ranks)} ranks of one mesh on one host; the limit is {LENGTH_MAX}")
    parts = [ranks] if ranks else []
    frames: list[bytes] = []
    while parts:
        part = parts.pop(0)
        env = {str(rank): dict(rank_env[rank]) for rank in part if rank in rank_env}
        try:
            frames.append(
                control_frame(replace(common, ranks=list(part), env=env, more=bool(common.preload and parts)))
            )
        except ProtocolError as error:
            if len(part) == 1:
                raise UsageError(
                    f"rank {part[0]} cannot be started with this environment, preload= and its breakpoints: "
                    f"{error}, the limit is {CONTROL_MAX} bytes"
                ) from None
            half = len(part) // 2
            parts[:0] = [part[:half], part[half:]]
    return frames
