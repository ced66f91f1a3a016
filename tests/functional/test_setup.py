"""``setup``: once in every rank, before the first actor."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from meshrt import (
    Actor,
    ActorError,
    ArgumentNotSerializable,
    CallCancelled,
    CallTimeout,
    Point,
    ProcessDied,
    UsageError,
    current_rank,
    endpoint,
    proc_mesh,
    this_host,
)
from meshrt.mesh.program import start_root
from tests.support.actors import Echo


class AfterSetup(Actor):
    """Looks at what the set-up left when it is built."""

    def __init__(self) -> None:
        self.at_init = os.environ.get("SET_UP", "")

    @endpoint
    def seen(self) -> str:
        return self.at_init


def mark() -> None:
    os.environ["SET_UP"] = os.environ.get("SET_UP", "") + f"x{current_rank().rank}"


def test_it_runs_before_the_first_actor_and_once_for_all_actors() -> None:
    mesh = proc_mesh(n=2, setup=mark)
    first = mesh.spawn("first", AfterSetup)
    second = mesh.spawn("second", AfterSetup)
    assert first.seen.call().get().values() == ["x0", "x1"]
    assert second.seen.call().get().values() == ["x0", "x1"]


def test_it_may_be_a_closure(tmp_path: Path) -> None:
    def note() -> None:
        (tmp_path / str(os.getpid())).touch()

    echo = proc_mesh(n=3, setup=note).spawn("echo", Echo)
    pids = echo.pid.call().get().values()
    assert {path.name for path in tmp_path.iterdir()} == {str(pid) for pid in pids}


def test_bootstrap_of_spawn_procs_is_the_same() -> None:
    mesh = this_host().spawn_procs(per_host={"gpus": 2}, bootstrap=mark)
    assert mesh.spawn("actor", AfterSetup).seen.call().get().values() == ["x0", "x1"]


def test_its_exception_is_the_spawn_error_with_the_rank() -> None:
    def only_rank_two_fails() -> None:
        if current_rank().rank == 2:
            raise OSError("no device here")

    mesh = proc_mesh(hosts=2, gpus=2, setup=only_rank_two_fails)
    actor = mesh.spawn("actor", Echo)
    with pytest.raises(ActorError) as caught:
        actor.get(20)
    assert caught.value.rank == 2
    assert caught.value.place.coordinates == (("hosts", 1), ("gpus", 0))
    assert "no device here" in str(caught.value) and "only_rank_two_fails" in str(caught.value)
    assert isinstance(caught.value.exception, OSError)


def test_one_that_cannot_be_pickled_is_refused_at_once() -> None:
    lock: Any = threading.Lock()
    with pytest.raises(ArgumentNotSerializable, match="setup"):
        proc_mesh(n=1, setup=lambda: lock.acquire())


def test_a_timeout_while_starting_names_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waits_for_a_gate.py").write_text(f"open({str(tmp_path / 'gate')!r}).close()")
    os.mkfifo(tmp_path / "gate")
    monkeypatch.syspath_prepend(tmp_path)
    mesh = proc_mesh(n=3, preload=["waits_for_a_gate"])
    with pytest.raises(CallTimeout, match=r"starting the ranks of .* from 3 of 3 \(ranks 0-2\)"):
        mesh.get(0.05)
    (tmp_path / "gate").open("w").close()
    mesh.get(20)


def test_a_timeout_names_the_set_up_that_may_be_the_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    gate = str(tmp_path / "gate")

    def hang() -> None:
        if current_rank().rank == 1:
            open(gate).close()

    echo = proc_mesh(n=2, setup=hang).spawn("echo", Echo)
    assert echo.slice(n=0).pid.call().get(20)
    with pytest.raises(CallTimeout, match=r"^echo.__init__\(\), or the set-up hang\(\) before it: .* 1 of 2 \(rank 1 "):
        echo.get(0.01)
    Path(gate).open("w").close()
    echo.get(20)
    with pytest.raises(CallTimeout, match=r"^other.__init__\(\): no answer"):
        proc_mesh(n=1).spawn("other", Echo).initialized.get(0)


def test_a_call_that_waits_for_the_set_up_is_cancelled_and_a_death_in_it_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    gate = str(tmp_path / "gate")

    def wait_or_die() -> None:
        if Path(gate).read_text() == "die":
            os._exit(3)

    mesh = proc_mesh(n=1, setup=wait_or_die)
    actor = mesh.spawn("actor", Echo)
    call = actor.pid.call_one()
    assert not actor.initialized.cancel() and call.cancel()
    assert isinstance(call.exception(0), CallCancelled)
    Path(gate).write_text("go on")
    assert actor.get(20).echo.call_one(1).get(20) == 1
    dying = proc_mesh(n=1, setup=wait_or_die).spawn("dying", Echo)
    call = dying.pid.call_one()
    Path(gate).write_text("die")
    for future in (dying.initialized, call):
        with pytest.raises(ProcessDied, match="exited with code 3"):
            future.get(20)


@pytest.mark.slow
def test_much_environment_and_a_preloaded_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks are asked for in several messages, and one process imports the module for all of them."""
    (tmp_path / "imported_once.py").write_text("import os\npid = os.getpid()\n")
    monkeypatch.syspath_prepend(tmp_path)
    mesh = proc_mesh(n=24, preload=["imported_once"], env=lambda point: {"OWN": str(point.rank) * 50_000})
    echo = mesh.spawn("echo", Echo)

    def look() -> tuple[int, str]:
        return sys.modules["imported_once"].pid, os.environ["OWN"]

    found = echo.apply.call(look).get(60).values()
    assert [own for _, own in found] == [str(rank) * 50_000 for rank in range(24)]
    assert len({pid for pid, _ in found}) == 1


def test_what_is_too_long_for_a_rank_leaves_no_mesh() -> None:
    with pytest.raises(UsageError, match=r"rank 0 cannot be started with this .*too long.* the limit is 1048576 bytes"):
        proc_mesh(n=2, preload=["x" * 2_000_000])
    assert start_root().registry.running() == []
    assert len(proc_mesh(n=2).spawn("echo", Echo).pid.call().get(20)) == 2


class AsyncAfterSetup(AfterSetup):
    """Has an event loop: the set-up function runs there."""

    @endpoint
    async def same_loop(self) -> bool:
        return os.environ["LOOP"] == str(id(asyncio.get_running_loop()))


async def mark_async() -> None:
    await asyncio.sleep(0)
    mark()
    os.environ["LOOP"] = str(id(asyncio.get_running_loop()))


async def fail_on_one() -> None:
    await asyncio.sleep(0)
    if current_rank().rank == 1:
        raise OSError("no device here")


@pytest.mark.parametrize("cls", [AfterSetup, AsyncAfterSetup])
def test_an_async_one_is_awaited_before_the_first_actor_and_once(cls: type[AfterSetup]) -> None:
    mesh = this_host().spawn_procs(per_host={"n": 2}, bootstrap=mark_async)
    for name in ("first", "second"):
        actor = mesh.spawn(name, cls)
        assert actor.seen.call().get(20).values() == ["x0", "x1"]
        if cls is AsyncAfterSetup:
            looped: Any = actor
            assert looped.same_loop.call().get(20).values() == [name == "first"] * 2


@pytest.mark.parametrize("cls", [AfterSetup, AsyncAfterSetup])
def test_the_exception_of_an_async_one_names_the_rank(cls: type[AfterSetup]) -> None:
    with pytest.raises(ActorError, match="no device here") as caught:
        proc_mesh(n=2, setup=fail_on_one).spawn("actor", cls).get(20)
    assert caught.value.rank == 1 and isinstance(caught.value.exception, OSError)
    assert "raised by the setup function" in caught.value.remote.traceback


async def env_of(point: Point) -> dict[str, str]:
    await asyncio.sleep(0)
    return {"OWN": str(point.rank)}


def test_what_env_returns_is_awaited_also_on_an_event_loop() -> None:
    async def on_a_loop() -> list[str]:
        echo = proc_mesh(n=2, env=env_of).spawn("echo", Echo)
        return (await echo.apply.call(lambda: os.environ["OWN"])).values()

    echo = proc_mesh(n=2, env=env_of).spawn("echo", Echo)
    assert echo.apply.call(lambda: os.environ["OWN"]).get(20).values() == ["0", "1"]
    assert asyncio.run(on_a_loop()) == ["0", "1"]


def test_errors_of_env_name_the_rank() -> None:
    async def breaks(point: Point) -> dict[str, str]:
        return {"OWN": str(1 // (1 - point.rank))}

    with pytest.raises(ZeroDivisionError) as raised:
        proc_mesh(n=2, env=breaks)
    assert raised.value.__notes__ == ["raised by the function env= for rank 1 (n=1)"]
    wrong: Any = lambda point: {"OWN": point.rank}  # noqa: E731 - of the wrong type, on purpose
    with pytest.raises(UsageError, match=r"names and values are strings, not 'OWN': 0 \(of rank 0 \(n=0\)\)"):
        proc_mesh(n=2, env=wrong)


def test_a_generator_as_set_up_function_is_refused() -> None:
    def half() -> Any:
        yield

    with pytest.raises(UsageError, match="setup is a generator function"):
        proc_mesh(n=1, setup=half)
