"""The type of a handle on an actor, for type checkers: see `meshrt.mesh.typed`."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from meshrt.actor.actor import Actor

__all__ = ["ActorMesh"]

A = TypeVar("A", bound=Actor)

ActorMesh: TypeAlias = type[A]
