"""The script's part of a recording: the calls that it waits for, from when they were sent until they are answered.

Written on the threads that call, and on those that read the answers; read on the root's loop, as the recorder allows
(`meshrt.timeline.recorder`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.hooks.services import PendingCall
from meshrt.hooks.table import hooks
from meshrt.timeline.operations import Part
from meshrt.timeline.recorder import Recorder

__all__ = ["ScriptTimeline"]


class ScriptTimeline:
    """Records from its creation on, until `end`.

    Args:
        pending: The calls that wait already, by their number.
    """

    def __init__(self, pending: Mapping[int, PendingCall]) -> None:
        self._recorder = Recorder(lambda: None)
        #: The call that the thread is about to send: its number, and since when.
        self._sending = threading.local()
        #: Calls that had been sent before.
        self._before: list[EndpointCall] = []
        self._recorder.hooks = [
            hooks.add(hooks.message_sent, self._about_to_send),
            hooks.add(hooks.call_sent, self._sent),
        ]
        for call_id, call in pending.items():
            self._before.append(self._wait_for(call, call_id))
        self._recorder.adopt(self._waiting_before())

    def _about_to_send(self, call_id: int) -> None:
        self._sending.call = call_id, time.monotonic_ns()

    def _sent(self, pending: PendingCall) -> None:
        sending = getattr(self._sending, "call", None)
        if sending is not None:  # otherwise it was about to be sent when the recording began
            call_id, begin = sending
            self._recorder.began(self._wait_for(pending, call_id), begin)

    def _wait_for(self, pending: PendingCall, call_id: int) -> EndpointCall:
        call = EndpointCall(pending.mesh_id, pending.actor, -1, pending.endpoint, [], 0, call_id)
        pending.when_done(lambda: self._recorder.ended(call), background=False)
        return call

    def _waiting_before(self) -> list[ActorState]:
        main = threading.main_thread().ident  # most scripts have no other; the thread that waits is not known
        return [ActorState(call.actor, main, call, None) for call in self._before]

    def take(self, room: int, got: int) -> Part:
        """Return a part (`Recorder.take`)."""
        return self._recorder.take(self._waiting_before(), room, got)

    def end(self) -> None:
        """Record no more (`Recorder.end`)."""
        self._recorder.end()
