"""What ranks may ask the root for: to be told of births and deaths, and to start and stop meshes of their own.

Each answer may come later; until then the rank waits, so whatever goes wrong is an answer too. On the root's loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.errors import MeshError
from meshrt.hooks.facts import Body
from meshrt.mesh.registry import Owner
from meshrt.mesh.spec import MeshSpec
from meshrt.transport.fate import Fate
from meshrt.wire.messages import Address, why_of

if TYPE_CHECKING:
    from meshrt.mesh.root import Root

__all__ = ["RankRequests"]

_log = logging.getLogger("meshrt")

Answer = Callable[[Body | None, str], None]


class RankRequests:
    """The requests of ranks, served by ``root``; `operations` goes into its services."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.operations: dict[str, Callable[[Address, Body, Answer], None]] = {
            "mesh.watch": self._watch,
            "mesh.told": self._told,
            "mesh.restarts": self._restarts,
            "mesh.restarted": self._restarted,
            "mesh.born": self._born,
            "mesh.spawn": self._spawn,
            "mesh.stop": self._stop,
            "mesh.initialized": self._initialized,
        }

    def _watch(self, _address: Address, body: Body, answer: Answer) -> None:
        self._root.registry.watch(body["mesh"], body["rank"], lambda fate: answer(fate.to_wire(), ""))

    def _told(self, _address: Address, body: Body, answer: Answer) -> None:
        self._root.alarm.told((body["mesh"], body["rank"], body["pid"]))
        answer({}, "")

    def _restarts(self, address: Address, body: Body, answer: Answer) -> None:
        self._root.restarts.allow(body["mesh"], body["ranks"], body["actor"], body["count"], address)
        answer({}, "")

    def _restarted(self, _address: Address, body: Body, answer: Answer) -> None:
        def restarted(incarnation: int, fate: Fate) -> None:
            answer({"incarnation": incarnation, "fate": fate.to_wire()}, "")

        self._root.registry.when_restarted(body["mesh"], body["rank"], body["actor"], restarted)

    def _born(self, _address: Address, body: Body, answer: Answer) -> None:
        self._root.registry.when_born(body["mesh"], body["rank"], lambda: answer({}, ""))

    def _spawn(self, address: Address, body: Body, answer: Answer) -> None:
        owner = Owner(*address, body["actor"])

        def work() -> None:
            # Placing agents may take a moment: not on the loop.
            try:
                mesh_id = self._root.spawn(MeshSpec.from_wire(body), owner=owner)
            except Exception as error:
                # The rank waits: whatever went wrong is its answer.
                if not isinstance(error, MeshError):
                    _log.exception("a mesh for a rank")
                answer(None, why_of(error))
                return
            # On the loop, where ranks end: the one that asks may have ended meanwhile.
            self._root.post(lambda: made(mesh_id))

        def made(mesh_id: str) -> None:
            self._root.lifecycle.own(owner, mesh_id)
            answer({"mesh_id": mesh_id, "name": self._root.name_of(mesh_id)}, "")

        threading.Thread(target=work, name="meshrt-spawn", daemon=True).start()

    def _initialized(self, _address: Address, body: Body, answer: Answer) -> None:
        initialized = self._root.registry.meshes[body["mesh"]].initialized
        initialized.when_done(lambda: answer({"why": str(initialized.exception() or "")}, ""), background=False)

    def _stop(self, _address: Address, body: Body, answer: Answer) -> None:
        if body["mesh"] not in self._root.registry.meshes:
            answer({}, "")
            return
        self._root.stop(body["mesh"], body["grace"], body["why"]).when_done(lambda: answer({}, ""), background=False)
