"""The rank's side of recording. On the control thread."""

from __future__ import annotations

from meshrt.errors import MeshError
from meshrt.hooks.operations import Grouped
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.timeline.operations import BeginOnRank, DropOnRank, EndOnRank, Part, TakeOnRank
from meshrt.timeline.recorder import Recorder

__all__ = ["RankTimelines", "load"]


class RankTimelines:
    """The recordings of this rank; each has hooks of its own."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._recordings: dict[str, Recorder] = {}

    def begin(self, begin: BeginOnRank) -> Grouped[None, None]:
        """Begin to record."""
        if begin.recording not in self._recordings:
            recorder = self._recordings[begin.recording] = Recorder(self._services.current_call)
            recorder.hooks = [
                hooks.add(hooks.endpoint_enter, recorder.enter),
                hooks.add(hooks.endpoint_exit, recorder.exit),
                hooks.add(hooks.message_sent, recorder.sent),
            ]
            recorder.adopt(self._services.actors())
        return Grouped(None)

    def take(self, take: TakeOnRank) -> Grouped[None, Part]:
        """Return a part."""
        got = take.got.get(str(self._services.rank), 0)
        return Grouped(None, self._named(take.recording).take(self._services.actors(), take.room, got))

    def end(self, end: EndOnRank) -> Grouped[None, None]:
        """Record no more."""
        self._named(end.recording).end()
        return Grouped(None)

    def drop(self, drop: DropOnRank) -> Grouped[None, None]:
        """Forget a recording; an unknown name has no effect."""
        recorder = self._recordings.pop(drop.recording, None)
        if recorder is not None:
            recorder.end()
        return Grouped(None)

    def _named(self, name: str) -> Recorder:
        recorder = self._recordings.get(name)
        if recorder is None:
            raise MeshError("this rank has no such recording")
        return recorder


def load(services: RankServices) -> None:
    """Serve recordings: called once, by the first request."""
    timelines = RankTimelines(services)
    services.serve(BeginOnRank, timelines.begin)
    services.serve(TakeOnRank, timelines.take)
    services.serve(EndOnRank, timelines.end)
    services.serve(DropOnRank, timelines.drop)
