"""One recording, on the side of the terminal: begun, fetched part by part while it goes on, ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

from meshrt.hooks.operations import Data, Operation
from meshrt.inspect.programs import command_of, telling_slow
from meshrt.timeline.collected import SCRIPT, Collected
from meshrt.timeline.operations import Begin, End, Ranks, Script, Take
from meshrt.transport import tools

__all__ = ["MOST", "Session"]

A = TypeVar("A", bound=Data)

#: Spans that are collected, at most: a larger trace is hard to open.
MOST = 500_000
#: Ranks that are asked at once, and bytes of their answers together: a control message has at most 1 MiB.
_AT_ONCE = 64
_ROOM = 600_000
_MOST_ROOM = 200_000
#: Characters of the script's name.
_SCRIPT_MAX = 60
#: Seconds for one answer: the program waits for silent ranks.
_SECONDS = 30.0


class Session:
    """A recording of a program. One thread.

    Raises (all of it):
        MeshError: The program rejects a request; the text says why.
        ConnectionError: The program has ended.
    """

    def __init__(self, program: tools.Program) -> None:
        self.collected = Collected()
        #: Set when the program has ended.
        self.closed = threading.Event()
        self._name = ""
        #: Number of the last part that has come, by (mesh id, rank).
        self._got: dict[tuple[str, int], int] = {}
        self._script = f"script {command_of(program, _SCRIPT_MAX)}"
        with telling_slow(program):
            self._connection = tools.connect(program, on_close=self.closed.set)

    def begin(self, ranks: str) -> int:
        """Begin to record; returns the number of ranks. ``ranks``: a selection, "": all."""
        begun = self._ask(Begin(ranks))
        self._name = begun.recording
        asked = self._ranks()
        self.collected.miss(begun.without)
        return sum(map(len, asked.values())) - len(begun.without)

    def fetch(self, *, everybody: bool = False) -> bool:
        """Fetch one part of each rank. Returns whether some ranks have more.

        Args:
            everybody: Ask also the ranks that were silent before.
        """
        part = self._ask(Script(self._name, _MOST_ROOM, self._got.get(("", SCRIPT), 0)))
        self._got["", SCRIPT] = part.part
        self.collected.add_script(part, self._script)
        more = part.more
        for mesh_id, ranks in self._ranks().items():
            known = self.collected.without
            asked = [rank for rank in ranks if everybody or (mesh_id, rank) not in known]
            for chunk in _chunks(asked):
                room = min(_MOST_ROOM, _ROOM // len(chunk))
                got = {str(rank): self._got.get((mesh_id, rank), 0) for rank in chunk}
                answer = self._ask(Take(self._name, mesh_id, chunk, room, got))
                for rank, part in answer.parts.items():
                    self._got[mesh_id, int(rank)] = part.part
                    self.collected.add(mesh_id, int(rank), part)
                    more = more or part.more
                self.collected.miss(answer.without)
        return more

    def end(self) -> None:
        """Record no more; recorded spans can still be fetched."""
        self._ask(End(self._name))

    def close(self) -> None:
        """Close the connection: the ranks forget the recording."""
        self._connection.close()

    def _ranks(self) -> dict[str, Sequence[int]]:
        meshes = self._ask(Ranks(self._name)).meshes
        self.collected.know(meshes)
        return {mesh.mesh: mesh.ranks for mesh in meshes}

    def _ask(self, operation: Operation[A]) -> A:
        return self._connection.ask(operation, timeout=_SECONDS)


def _chunks(ranks: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ranks), _AT_ONCE):
        yield ranks[start : start + _AT_ONCE]
