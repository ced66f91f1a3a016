"""The rank's side of recording. On the control thread."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.errors import MeshError
from meshrt.hooks.operations import Grouped
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks
from meshrt.timeline.operations import BeginOnRank, DropOnRank, EndOnRank, Part, TakeOnRank
from meshrt.timeline.recorder import Recorder

__all__ = ["RankTimelines", "load"]


class _Recording:
    """A recorder, and the functions that take it out of the hooks."""

    def __init__(self, services: RankServices) -> None:
        self.recorder = recorder = Recorder(services.current_call)
        self._hooks: list[Callable[[], None]] = [
            hooks.add(hooks.endpoint_enter, recorder.enter),
            hooks.add(hooks.endpoint_exit, recorder.exit),
            hooks.add(hooks.message_sent, recorder.sent),
        ]
        recorder.adopt(services.actors())

    def unhook(self) -> None:
        """Record no more."""
        for remove in self._hooks:
            remove()


class RankTimelines:
    """The recordings of this rank; each has hooks of its own."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._recordings: dict[str, _Recording] = {}

    def begin(self, begin: BeginOnRank) -> Grouped[None, None]:
        """Begin to record."""
        if begin.recording not in self._recordings:
            self._recordings[begin.recording] = _Recording(self._services)
        return Grouped(None)

    def take(self, take: TakeOnRank) -> Grouped[None, Part]:
        """Return a part."""
        got = take.got.get(str(self._services.rank), 0)
        return Grouped(None, self._named(take.recording).recorder.take(self._services.actors(), take.room, got))

    def end(self, end: EndOnRank) -> Grouped[None, None]:
        """Record no more."""
        recording = self._named(end.recording)
        recording.unhook()
        recording.recorder.end()
        return Grouped(None)

    def drop(self, drop: DropOnRank) -> Grouped[None, None]:
        """Forget a recording; an unknown name has no effect."""
        recording = self._recordings.pop(drop.recording, None)
        if recording is not None:
            recording.unhook()
        return Grouped(None)

    def _named(self, name: str) -> _Recording:
        recording = self._recordings.get(name)
        if recording is None:
            raise MeshError("this rank has not been asked to record")
        return recording


def load(services: RankServices) -> None:
    """Serve recordings: called once, by the first request."""
    timelines = RankTimelines(services)
    services.serve(BeginOnRank, timelines.begin)
    services.serve(TakeOnRank, timelines.take)
    services.serve(EndOnRank, timelines.end)
    services.serve(DropOnRank, timelines.drop)
