"""Arguments and values by rank: ``Endpoint.map`` and ``Endpoint.reduce`` (`meshrt.actor.reducing`)."""

from __future__ import annotations

from collections.abc import Iterable

from meshrt.actor.reducing import REDUCE, Block, Combine
from meshrt.errors import RankPlace, UsageError
from meshrt.mesh.call import OneCall
from meshrt.mesh.owner import about
from meshrt.mesh.sending import send_call
from meshrt.mesh.several import all_ended
from meshrt.mesh.target import Target
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import counted
from meshrt.transport.driver import Driver

__all__ = ["arguments_by_rank", "first_block", "send_block"]


def arguments_by_rank(target: Target, endpoint: str, columns: tuple[Iterable[object], ...]) -> list[tuple[object, ...]]:
    """Return the arguments of each rank, in rank order.

    Args:
        columns: For each argument of the endpoint the values of all ranks: in rank order, or a `ValueMesh`.
    Raises:
        UsageError: There is no column; one has not as many values as there are ranks, or is a `ValueMesh` of another
            shape.
    """
    name = f"{target.name}.{endpoint}.map()"
    if not columns:
        raise UsageError(f"{name}: expected one sequence, or more, with a value for each rank")
    count = len(target.shape)
    found = []
    for number, column in enumerate(columns, 1):
        if isinstance(column, ValueMesh):
            if column.extent != target.shape.extent:
                raise UsageError(f"{name}: argument {number} has the shape {column.extent}, not {target.shape}")
            values = column.values()
        elif isinstance(column, Iterable):
            values = list(column)
        else:
            raise UsageError(
                f"{name}: argument {number} is a {type(column).__name__}; expected a sequence or a ValueMesh with a "
                f"value for each rank of {target.shape}. Keyword arguments are the same for all"
            )
        if len(values) != count:
            raise UsageError(
                f"{name}: argument {number} has {counted(len(values), 'value')}; expected {count}, one for each rank "
                f"of {target.shape}"
            )
        found.append(values)
    return list(zip(*found, strict=True))


def first_block(target: Target, endpoint: str, function: Combine) -> Block:
    """Return the block that is all ranks of a target."""
    whole = target.mesh_id, target.name, target.address, target.shape, target.whole, target.suffix, target.spawn_id
    return Block(endpoint, function, whole, send_block, all_ended, 0, len(target.shape))


def send_block(
    block: Block, args: tuple[object, ...], kwargs: dict[str, object], target: Target | None = None
) -> OneCall:
    """Have a block reduced by the rank at its first position. Raises as `Endpoint.call`.

    Args:
        target: The target of the block, where it was not received.
    """
    mesh_id, name, address, shape, whole, suffix, spawn_id = block.target
    of_block = target or Target(mesh_id, name, address, shape, whole, about, None, suffix, spawn_id)

    def receiver(driver: Driver, head: Target, _: str) -> OneCall:
        return _Reduction(driver, head, of_block, block.endpoint)

    return send_call(of_block.only(block.first), REDUCE, (block, args, kwargs), {}, receiver)


class _Reduction(OneCall):
    """One rank answers, after those that it has called itself.

    Args:
        head: That rank.
        whole: All of them.
    """

    __slots__ = ("_whole",)

    def __init__(self, driver: Driver, head: Target, whole: Target, endpoint: str) -> None:
        super().__init__(driver, head, endpoint)
        self._whole = whole

    def owed_by(self, mesh_id: str, rank: int) -> bool:
        """Whether the end of the rank may reach it, by the ranks between them."""
        return not self.finished and self._whole.position(mesh_id, rank) is not None

    def _unanswered(self) -> tuple[list[RankPlace], int]:
        """All of them: which of them the first one waits for is not known here."""
        count = len(self._whole.shape)
        return [self._whole.place(position) for position in range(count)], count
