"""The rank's side of recording. On the control thread.

* operation ``timeline.begin`` {recording}: record from now on, under this name; a repeated request has no effect.
* operation ``timeline.take`` {recording, room, got}: the next part (`Recorder.take`), and this rank's ``pid``; ``got``:
  number of the last part that has come, by rank.
* operation ``timeline.end`` {recording}: record no more, and keep what there is.
* operation ``timeline.drop`` {recording}: forget it.
"""

from __future__ import annotations

from typing import Any

from meshrt.errors import MeshError
from meshrt.hooks.facts import Body
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.timeline.recorder import Recorder

__all__ = ["RankTimelines", "load"]


class RankTimelines:
    """The recordings of this rank; each has hooks of its own."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._recorders: dict[str, Recorder] = {}

    def begin(self, body: Body) -> Body:
        """Serve ``timeline.begin``: begin to record."""
        name = str(body["recording"])
        if name not in self._recorders:
            recorder = self._recorders[name] = Recorder(self._services.current_call)
            for functions, function in _hooks(recorder):
                functions.append(function)
            recorder.adopt(self._services.actors())
        return {"same": {}}

    def take(self, body: Body) -> Body:
        """Serve ``timeline.take``: return a part."""
        got = int(body["got"].get(str(self._services.rank), 0))
        part = self._recorder(body).take(self._services.actors(), int(body["room"]), got)
        return {"same": {}, "per": {**part, "pid": self._services.pid}}

    def end(self, body: Body) -> Body:
        """Serve ``timeline.end``: record no more."""
        recorder = self._recorder(body)
        _unhook(recorder)
        recorder.end()
        return {"same": {}}

    def drop(self, body: Body) -> Body:
        """Serve ``timeline.drop``: forget a recording; an unknown name has no effect."""
        recorder = self._recorders.pop(str(body["recording"]), None)
        if recorder is not None:
            _unhook(recorder)
        return {"same": {}}

    def _recorder(self, body: Body) -> Recorder:
        recorder = self._recorders.get(str(body["recording"]))
        if recorder is None:
            raise MeshError("this rank has not been asked to record")
        return recorder


def _hooks(recorder: Recorder) -> list[tuple[list[Any], Any]]:
    return [
        (hooks.endpoint_enter, recorder.enter),
        (hooks.endpoint_exit, recorder.exit),
        (hooks.message_sent, recorder.sent),
    ]


def _unhook(recorder: Recorder) -> None:
    for functions, function in _hooks(recorder):
        if function in functions:  # a hook that raised was removed
            functions.remove(function)


def load(services: RankServices) -> None:
    """Serve recordings: called once, by the first request."""
    timelines = RankTimelines(services)
    services.operations["timeline.begin"] = timelines.begin
    services.operations["timeline.take"] = timelines.take
    services.operations["timeline.end"] = timelines.end
    services.operations["timeline.drop"] = timelines.drop
