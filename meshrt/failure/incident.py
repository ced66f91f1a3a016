"""All that is known of one time at which something failed: what the report is made of, and what its file holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from meshrt.failure.causes import Verdict, judge
from meshrt.failure.record import FailureRecord, Plain, Reference

__all__ = ["Incident", "MeshFacts"]


@dataclass(slots=True)
class MeshFacts(Plain):
    """A mesh as it was then.

    Attributes:
        sizes: By dimension.
        started: Seconds since the epoch.
        alive: Ranks that had not ended when the stacks were asked for.
    """

    mesh_id: str = ""
    name: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    started: float = 0.0
    alive: tuple[int, ...] = ()


@dataclass(slots=True)
class Incident(Plain):
    """See the module.

    Attributes:
        number: Counts the incidents of the program, from 1.
        run_id: The program, and ``argv`` what it was started as.
        began: When the first failure came, seconds since the epoch.
        records: Failures, in the order in which they came.
        left_out: So many more failures came than are kept.
        stacks: Where the ranks stood when the first one failed (`meshrt.inspect.plain`); empty until they are known.
        stacks_why: Why there are none.
        asked: When they were asked for it, on the root's monotonic clock, ns.
        hung: The stacks of those that did not answer.
        caller: The line of the script that was told.
        call: The call that it had made, ``"trainer.step()"``.
        error: What it was told, in one line.
        since: When that call was sent, monotonic ns.
        about: The failures that it was told of.
    """

    number: int = 0
    run_id: str = ""
    argv: tuple[str, ...] = ()
    began: float = 0.0
    meshes: tuple[MeshFacts, ...] = ()
    records: tuple[FailureRecord, ...] = ()
    left_out: int = 0
    stacks: dict[str, Any] = field(default_factory=dict)
    stacks_why: str = ""
    asked: int = 0
    hung: dict[str, Any] = field(default_factory=dict)
    caller: str = ""
    call: str = ""
    error: str = ""
    since: int = 0
    about: tuple[Reference, ...] = ()

    def verdict(self) -> Verdict:
        """Find the root cause, of what the script was told if it was told something."""
        return judge(self.records, self.since, self.about)

    def mesh(self, mesh_id: str) -> MeshFacts:
        """Return what is known of a mesh."""
        return next((mesh for mesh in self.meshes if mesh.mesh_id == mesh_id), MeshFacts(mesh_id))
