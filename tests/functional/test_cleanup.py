"""``__cleanup__``: runs once at the end of an actor, behind what was sent before."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from meshrt import Actor, context, current_rank, endpoint, proc_mesh
from tests.support.screen import Screen

pytestmark = pytest.mark.one_program


class Notes(Actor):
    """Writes into a file of its own when it is cleaned up."""

    def __init__(self, folder: str, fail: bool = False) -> None:
        self.folder = Path(folder)
        self.fail = fail
        self.count = 0

    @endpoint
    def add(self) -> int:
        self.count += 1
        return self.count

    def __cleanup__(self, exc: object) -> None:
        if self.fail:
            raise OSError("cleaning failed")
        with (self.folder / f"{context().actor_instance.name}-{os.getpid()}").open("a") as file:
            file.write(f"{exc} {self.count}\n")


class AsyncNotes(Actor):
    """The same with a loop."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.task: asyncio.Task[None] | None = None

    @endpoint
    async def start(self) -> None:
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                (self.folder / "task ended").touch()

        self.task = asyncio.create_task(work())
        await asyncio.sleep(0)

    async def __cleanup__(self, exc: object) -> None:
        await asyncio.sleep(0)
        (self.folder / f"async {exc}").touch()


class SyncCleanupOfAsync(AsyncNotes):
    def __cleanup__(self, exc: object) -> None:  # type: ignore[override]  # both kinds are allowed
        (self.folder / f"sync {exc} {current_rank().rank}").touch()


def written(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.iterdir())


def test_it_runs_once_when_the_mesh_is_stopped(tmp_path: Path) -> None:
    with proc_mesh(n=2) as mesh:
        notes = mesh.spawn("notes", Notes, str(tmp_path))
        for _ in range(10):
            notes.add.broadcast()
    assert written(tmp_path) == ["None 10\n", "None 10\n"]


def test_it_runs_once_when_the_actor_is_stopped_and_the_mesh_later(tmp_path: Path) -> None:
    with proc_mesh(n=2) as mesh:
        notes = mesh.spawn("notes", Notes, str(tmp_path)).get(20)
        notes.add.broadcast()
        notes.stop()
        assert written(tmp_path) == ["None 1\n", "None 1\n"]
    assert written(tmp_path) == ["None 1\n", "None 1\n"]


def test_every_actor_of_a_mesh_is_cleaned_up(tmp_path: Path) -> None:
    with proc_mesh(n=1) as mesh:
        for name in ("one", "two", "three"):
            mesh.spawn(name, Notes, str(tmp_path)).get(20)
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"one", "two", "three"}


@pytest.mark.parametrize(("cls", "name"), [(AsyncNotes, "async None"), (SyncCleanupOfAsync, "sync None 0")])
def test_async_actors_and_their_tasks_end_too(tmp_path: Path, cls: type[AsyncNotes], name: str) -> None:
    with proc_mesh(n=1) as mesh:
        mesh.spawn("notes", cls, str(tmp_path)).start.call_one().get(20)
    assert {path.name for path in tmp_path.iterdir()} == {name, "task ended"}


def test_one_that_fails_is_reported_and_the_stop_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    mesh = proc_mesh(n=1)
    mesh.spawn("notes", Notes, str(tmp_path), True).get(20)
    assert mesh.stop().get(20) is None
    assert "notes.__cleanup__() raised on rank 0" in err.wait_for("OSError: cleaning failed")


def test_it_does_not_run_for_an_actor_that_never_was(tmp_path: Path) -> None:
    class Never(Notes):
        def __init__(self, folder: str) -> None:
            super().__init__(folder)
            raise ValueError("not today")

    with proc_mesh(n=1) as mesh:
        assert mesh.spawn("never", Never, str(tmp_path)).initialized.exception(20) is not None
    assert not list(tmp_path.iterdir())
