"""Operations without a class of their own: tests of the runtime, and of stand-ins, put them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from meshrt.hooks.facts import Answered, Unanswered
from meshrt.hooks.operations import GroupedOperation, Operation

__all__ = ["Group", "asked", "asked_of_many", "untyped"]


def asked(name: str, /, **body: Any) -> Operation[Any]:
    """Return an operation with these arguments; its answer is a dict."""
    made: Operation[Any] = _made(name, body, Operation[dict[str, Any]])
    return made


def asked_of_many(name: str, /, **body: Any) -> GroupedOperation[Any, Any]:
    """Return an operation for many ranks, which takes all that they answer."""
    made: GroupedOperation[Any, Any] = _made(name, body, GroupedOperation[Any, Any])
    return made


def _made(name: str, body: Mapping[str, Any], base: Any) -> Any:
    # The brackets of a base are lost: its answer is named here.
    kind = msgspec.defstruct(
        "Asked",
        [(key, Any) for key in body],
        bases=(base.__origin__,),
        tag=name,
        frozen=True,
        namespace={"__orig_bases__": (base,)},
    )
    return kind(**body)


class Group(NamedTuple):
    """What a host agent says about ranks of one mesh, as `GroupedOperation.read_group` takes it."""

    mesh_id: str
    ranks: tuple[int, ...]
    kind: str
    same: Any
    per: Mapping[int, Any]


def untyped(group: Answered[Any, Any] | Unanswered) -> Group:
    """Return what was read."""
    if isinstance(group, Answered):
        return Group(group.mesh_id, group.ranks, "answered", group.same, group.per)
    same = {"state": group.state, "stack": group.stack} if group.kind == "silent" else group.why
    return Group(group.mesh_id, group.ranks, group.kind, same, {})
