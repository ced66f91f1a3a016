"""What a process that is no part of a program asks its root for, to call its actors (`meshrt.connect`).

It asks as a terminal does. What it gets with the secret is what a rank has: its calls go to the ranks directly.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshrt.hooks.operations import Data, Operation
from meshrt.wire.addresses import HostAddress
from meshrt.wire.certificate import Certificate

__all__ = [
    "ActorFacts",
    "Actors",
    "ActorsOf",
    "DescribeActor",
    "Described",
    "EndpointFacts",
    "Enter",
    "Entered",
    "Parameter",
    "ReadEndpoints",
]


class Entered(Data, frozen=True):
    """The process may call actors.

    Attributes:
        machine: The number of this machine (`meshrt.store.machine`).
        certificate: None: the program has one machine.
    """

    secret: bytes
    address: HostAddress
    certificate: Certificate | None


class Enter(Operation[Entered], frozen=True, tag="client.enter"):
    """A process wants to call actors; ``versions``: `meshrt.wire.versions.Versions.text`."""

    versions: str


class ActorFacts(Data, frozen=True):
    """An actor, on the ranks of a view of a mesh (`Shape.to_wire`)."""

    name: str
    mesh: str
    mesh_name: str
    view: Sequence[object]
    whole: Sequence[object]
    hosts: Sequence[HostAddress]


class Actors(Data, frozen=True):
    """The actors of a program, by mesh and name."""

    actors: Sequence[ActorFacts]


class ActorsOf(Operation[Actors], frozen=True, tag="client.actors"):
    """The actors that run."""


class Parameter(Data, frozen=True):
    """A parameter of an endpoint; ``kind`` as in `inspect`, ``default`` and ``annotation`` as text, None: none."""

    name: str
    kind: int
    default: str | None = None
    annotation: str | None = None


class EndpointFacts(Data, frozen=True):
    """An endpoint, as `meshrt.actor.endpoint.EndpointSpec` has it."""

    name: str
    is_async: bool
    is_concurrent: bool
    parameters: Sequence[Parameter]
    returns: str | None
    doc: str


class Described(Data, frozen=True):
    """The class of an actor, without its code."""

    module: str
    name: str
    doc: str
    endpoints: Sequence[EndpointFacts]


class DescribeActor(Operation[Described], frozen=True, tag="client.describe"):
    """The class of an actor; ``rank``: one of those where it lives."""

    mesh: str
    rank: int
    actor: str


class ReadEndpoints(Operation[Described], frozen=True, tag="client.endpoints"):
    """The same, asked of the rank."""

    actor: str
