"""The ranks that an agent is asked to start: what each of them is told, and whether the machine can hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from meshrt.errors import SpawnError
from meshrt.host.child import Birth
from meshrt.host.limits import check_limits, own_gpus
from meshrt.wire.addresses import HostAddress
from meshrt.wire.certificate import Certificate
from meshrt.wire.handshake import Secret
from meshrt.wire.tree import Spawn

__all__ = ["Program", "checked"]


class Program(msgspec.Struct, frozen=True):
    """The program, as the root has described it to this agent."""

    run_id: str
    #: Of the processes of this agent.
    address: HostAddress
    run_directory: str
    #: See `Birth`.
    kept_at: str
    secret: Secret
    host: str
    argv: list[str]
    certificate: Certificate | None

    def births(self, asked: Iterable[Spawn], new_family: Callable[[], int], root_pipe: int) -> list[Birth]:
        """Return the ranks of one mesh, which several messages may ask for.

        Args:
            new_family: Returns the number of a new family (`meshrt.host.family`).
            root_pipe: Descriptor of the pipe that tells of the end of the root.
        """
        return [
            Birth(
                spawn.mesh,
                spawn.name,
                rank,
                spawn.labels,
                spawn.sizes,
                {**spawn.common_env, **spawn.env.get(str(rank), {})},
                self.run_id,
                self.address,
                self.secret,
                self.host,
                self.argv,
                new_family(),
                root_pipe,
                self.run_directory,
                self.kept_at,
                spawn.operations,
                self.certificate,
            )
            for spawn in asked
            for rank in spawn.ranks
        ]


def checked(births: Sequence[Birth], running: int | None, refuse: Callable[[Birth, str], None]) -> Iterator[Birth]:
    """Yield the ranks that this machine can hold; all from the first that it cannot are refused.

    Args:
        running: Ranks that run here already; None: the root has looked at the limits, as this is its machine.
        refuse: Given such a rank, and why.
    """
    problem: SpawnError | None = None
    for index, birth in enumerate(births):
        try:
            if index == 0 and running is not None:
                check_limits(len(births), running)
            birth.env = own_gpus(birth.env)
        except SpawnError as error:
            problem = error
        if problem is None:
            yield birth
        else:
            refuse(birth, f"host {birth.host}: {problem}")
