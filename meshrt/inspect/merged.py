"""The stacks of many ranks, merged, and who waits for whom: the answer of ``where``, as docs/json.md says.

Everything together takes at most `meshrt.inspect.fitting.BUDGET` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from meshrt.hooks.operations import Data
from meshrt.inspect.records import Kind

__all__ = [
    "NO_STACKS",
    "CallWait",
    "ChainEnd",
    "MergedFrame",
    "MergedMesh",
    "MergedStacks",
    "Missing",
    "NoAnswer",
    "Party",
    "RankClass",
    "RankSet",
    "StackNode",
    "StackTree",
    "WaitChain",
    "Waits",
]

NoAnswer = Literal["gone", "silent", "refused"]
"""As `meshrt.hooks.facts.Unanswered.kind`."""


class RankSet(Data, frozen=True):
    """Base ranks of a mesh.

    Attributes:
        text: ``"all"``, or by dimensions (``"hosts=*, gpus=3"``); "": no such form is easier to read than the numbers.
    """

    count: int = 0
    ranks: Sequence[int] = ()
    text: str = ""


class Missing(RankSet, frozen=True, kw_only=True):
    """Ranks without an answer; ``why``: in words."""

    kind: NoAnswer
    why: str


class MergedFrame(Data, frozen=True):
    """A frame; ``lines``: lowest and highest, which differ only where ranks run."""

    file: str
    function: str
    lines: tuple[int, int]
    hidden: bool


class RankClass(RankSet, frozen=True, kw_only=True):
    """Ranks at the same place in the same state.

    Attributes:
        state, holder, source: As of a `meshrt.inspect.records.Record`.
        since: For how many seconds they are there, least and most; empty: not known.
        cpu: Share of a processor, least and most; empty: not known.
        names: Of the threads or tasks, a few.
        endpoints: A few.
    """

    state: str
    holder: str
    source: str
    since: Sequence[float]
    cpu: Sequence[float]
    names: Sequence[str]
    endpoints: Sequence[str]


class StackNode(RankSet, frozen=True, kw_only=True):
    """Frames that all of the ranks share beyond the node above, and what is below, the largest part first."""

    frames: Sequence[MergedFrame]
    children: list[StackNode]
    classes: Sequence[RankClass]


class StackTree(StackNode, frozen=True, kw_only=True):
    """The stacks of an actor, of its further tasks, or of threads of one name; ``label``: the name."""

    kind: Kind
    label: str


class MergedMesh(Data, frozen=True, kw_only=True):
    """The stacks of one mesh.

    Attributes:
        asked: How many ranks.
        waiting: Ranks of which nothing is known yet.
        culprits: Ranks that are not where most are.
        left_out: How many classes and entries of ``without`` there are beyond.
    """

    mesh_id: str
    name: str
    asked: int
    answered: RankSet
    waiting: RankSet
    culprits: RankSet
    without: list[Missing]
    trees: list[StackTree]
    left_out: int = 0


class Party(Data, frozen=True):
    """An actor of some ranks, or the script: ``""``, ``""``, [] and 1."""

    mesh_id: str
    actor: str
    ranks: Sequence[int]
    count: int


class CallWait(Party, frozen=True):
    """The ranks whose answers to a call are waited for; of many ``ranks`` has the first ones.

    Attributes:
        endpoint: Of the call; or the collective, as ``"all_reduce #12 of dp"``.
        any: The next answer ends the wait.
        collective: It is waited until these ranks enter a collective.
        port: Of ``send``: it is waited until they, or the script (no ranks), take what was sent to their port. Of
            ``recv``: until a message comes.
    """

    endpoint: str
    any: bool
    collective: bool
    port: bool


class ChainEnd(Data, frozen=True):
    """What ranks at the end of a chain do, in words."""

    doing: str
    ranks: Sequence[int]


class WaitChain(Data, frozen=True):
    """Who waits for whom, step by step.

    Attributes:
        text: All of it in one line.
        cycle: The last ones wait for the first one.
        mismatch: ``ends`` are in different collectives of one group, and none of these ends.
        since: For how many seconds all of these waits have lasted.
        left: Seconds until the first time-out in it ends it; None: no time-out is known.
        lines: Where in the script it waits, ``"/home/me/train.py:42"``.
        alike: Those that wait in the same way for others of the same actor.
        path: The calls that are waited for at each step.
        path_left_out: Number of further steps.
        state: The state of those at the end; "": they differ, or nothing is known.
    """

    text: str
    cycle: bool
    mismatch: bool
    since: float
    left: float | None
    waiting: Party
    alike: Sequence[Party]
    path: Sequence[Sequence[CallWait]]
    path_left_out: int
    state: str
    ends: Sequence[ChainEnd]
    lines: Sequence[str] = ()


class Unread(Party, frozen=True):
    """Errors of one endpoint that have come to the script and that nobody has read; ``text``: all of it in one line."""

    endpoint: str
    error: str
    text: str


class Waits(Data, frozen=True):
    """Who waits for whom, and which errors the script has not read; ``waits_left_out``: number of further chains."""

    waits: Sequence[WaitChain] = ()
    waits_left_out: int = 0
    unread: Sequence[Unread] = ()


class MergedStacks(Waits, frozen=True):
    """The stacks of meshes.

    Attributes:
        left_out: Number of further meshes.
        script: Where the script is, if all ranks wait for messages and it waits for none of them; "": it is not so.
    """

    meshes: Sequence[MergedMesh] = ()
    left_out: int = 0
    script: str = ""


NO_STACKS = MergedStacks()
"""No stacks of any rank."""
