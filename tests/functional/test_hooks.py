"""The hooks of a rank's life: which run, when, and on which thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.mesh.program import start_root
from meshrt.wire.operations import Hold
from tests.support.actors import Echo, Failing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 30


def test_the_hooks_of_a_rank(tmp_path: Path) -> None:
    mesh = proc_mesh(n=1, preload=["tests.support.ready"], env={"MESHRT_TEST_HOOKS": str(tmp_path)})
    mesh.spawn("echo", Echo).get(WAIT)
    assert (tmp_path / "ready").read_text() == "MainThread\n"
    wait_until((tmp_path / "pulse").exists, WAIT)
    services = start_root().services
    (described,) = services.meshes()
    for held in (True, False):
        services.tell_rank(described.mesh_id, 0, Hold(held))
        wait_until((tmp_path / f"hold-{held}").exists, WAIT)
    assert not (tmp_path / "closing").exists()
    mesh.stop()
    assert (tmp_path / "ready").read_text() == "MainThread\n"
    threads = {line for name in ("pulse", "hold-True", "closing") for line in (tmp_path / name).read_text().split()}
    assert threads == {"meshrt-control"}


def test_actors_of_a_rank_that_fail_together_are_all_seen() -> None:
    """The first failure of a rank loads what looks at it; those that come while it is loaded are not lost."""
    mesh = proc_mesh(n=4, post_mortem="dump")
    actors = [mesh.spawn(name, Failing).get(WAIT) for name in ("first", "second", "third")]
    for failed in [actor.fail.call() for actor in actors]:
        assert failed.exception(WAIT) is not None
    files = start_root().run.run_directory / "post-mortem"
    # A call ends with the first failure: the other ranks may still be at theirs.
    wait_until(lambda: len(list(files.glob("*.json"))) == 12, WAIT, "a file for each failure")
