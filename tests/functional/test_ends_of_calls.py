"""Each way to call an actor, on each kind of mesh: order, time-out, cancellation, and the death of a rank."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import (
    Accumulator,
    Actor,
    ActorAborted,
    ActorMesh,
    CallCancelled,
    CallTimeout,
    Future,
    Port,
    ProcessDied,
    context,
    current_rank,
    endpoint,
    get_or_spawn,
    proc_mesh,
    testing,
)
from tests.support.programs import another_program
from tests.support.waiting import wait_until

WAIT = 20


class Noting(Actor):
    """Notes what it is given; a path is waited for."""

    def __init__(self) -> None:
        self.noted: list[Any] = []

    @endpoint
    def get(self, what: int | Path) -> int:
        self.noted.append(what)
        return _number(what)

    @endpoint(explicit_response_port=True)
    def ported(self, port: Port[int], what: int | Path) -> None:
        self.noted.append(what)
        if isinstance(what, int):
            port.send(what)
        else:
            _touch(what)
            threading.Thread(target=lambda: port.send(_number(what)), daemon=True).start()

    @endpoint
    def all_noted(self) -> list[Any]:
        return self.noted

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def abort(self) -> None:
        context().actor_instance.abort("it is time")


def _touch(path: Path) -> None:
    path.with_name(f"{path.name}.{current_rank().rank}").touch()


def _number(what: int | Path) -> int:
    if isinstance(what, int):
        return what
    if context().actor_instance.name != "root":  # else it is a thread, and that was done
        _touch(what)
    wait_until(what.exists, WAIT)
    return -1


Way = Callable[[ActorMesh[Noting], Any], Future[Any]]

WAYS: dict[str, Way] = {
    "endpoint": lambda mesh, what: mesh.endpoint("get").call(what),
    "map": lambda mesh, what: mesh.endpoint(Noting.get).map([what] * len(mesh)),
    "accumulator": lambda mesh, what: Accumulator(mesh.endpoint("get"), 0, max).accumulate(what),
    "port": lambda mesh, what: mesh.ported.call(what),
}


@contextlib.contextmanager
def _connected() -> Iterator[ActorMesh[Noting]]:
    code = f"import meshrt\nfrom {__name__} import Noting\nmeshrt.proc_mesh(n=2).spawn('noting', Noting).get()\n"
    with another_program(code) as job, meshrt.connect(job.pid) as program:
        yield program.actor("noting", Noting)


@contextlib.contextmanager
def _mesh(kind: str) -> Iterator[ActorMesh[Noting]]:
    if kind == "connected":
        with _connected() as found:
            yield found
    elif kind == "local":
        with testing.local_mesh(n=2) as mesh:
            yield mesh.spawn("noting", Noting)
    elif kind == "singleton":
        yield get_or_spawn("noting", Noting).get(WAIT)
    else:
        yield proc_mesh(n=2).spawn("noting", Noting)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "way"),
    [*(("ranks", way) for way in WAYS), ("singleton", "map"), ("local", "endpoint"), ("connected", "map")],
)
def test_the_ends_of_calls(kind: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)  # calls are told here
    call = WAYS[way]
    with _mesh(kind) as mesh:
        count = len(mesh)
        calls = [call(mesh, number) for number in range(50)]
        assert meshrt.gather(*calls).get(WAIT)
        assert mesh.all_noted.call().get(WAIT).values() == [[*range(50)]] * count

        def blocked(name: str) -> Future[Any]:
            """Call until each rank has begun."""
            future = call(mesh, tmp_path / name)
            wait_until(lambda: all((tmp_path / f"{name}.{rank}").exists() for rank in range(count)), WAIT)
            return future

        late = blocked("late")
        with pytest.raises(CallTimeout, match=f"no answer within 0.05 s from {count} of {count}"):
            late.get(0.05)
        (tmp_path / "late").touch()
        late.get(WAIT)

        dropped = blocked("dropped")
        behind = call(mesh, 100)
        if way != "port":  # it waits; a port leaves its actor free
            assert behind.cancel()
        assert dropped.cancel() and not dropped.cancel()
        assert isinstance(dropped.exception(0), CallCancelled)
        (tmp_path / "dropped").touch()
        call(mesh, 101).get(WAIT)
        noted = mesh.all_noted.call().get(WAIT).values()
        assert all((100 in each) is (way == "port") and each[-1] == 101 for each in noted)

        if kind == "local":  # a thread does not die
            assert isinstance(mesh.abort.call().exception(WAIT), ActorAborted)
            assert isinstance(call(mesh, 102).exception(WAIT), ActorAborted)
        else:
            pid = mesh.pid.call().get(WAIT).values()[-1]
            owed = blocked("owed")
            os.kill(pid, signal.SIGKILL)
            error = owed.exception(WAIT)
            assert isinstance(error, ProcessDied) and error.place.pid == pid
            (tmp_path / "owed").touch()
