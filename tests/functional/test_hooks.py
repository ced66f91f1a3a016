"""The hooks of a rank's life: which run, when, and on which thread."""

from __future__ import annotations

from pathlib import Path

from meshrt import proc_mesh
from meshrt.mesh.root import start_root
from tests.support.actors import Echo
from tests.support.waiting import wait_until

WAIT = 30


def test_the_hooks_of_a_rank(tmp_path: Path) -> None:
    mesh = proc_mesh(n=1, preload=["tests.support.ready"], env={"MESHRT_TEST_HOOKS": str(tmp_path)})
    mesh.spawn("echo", Echo).get(WAIT)
    assert (tmp_path / "ready").read_text() == "MainThread\n"
    wait_until((tmp_path / "pulse").exists, WAIT)
    services = start_root().services
    (described,) = services.meshes()
    for held in (True, False):
        services.send_rank(described["mesh_id"], 0, "hold", {"held": held})
        wait_until((tmp_path / f"hold-{held}").exists, WAIT)
    assert not (tmp_path / "closing").exists()
    mesh.stop()
    assert (tmp_path / "ready").read_text() == "MainThread\n"
    threads = {line for name in ("pulse", "hold-True", "closing") for line in (tmp_path / name).read_text().split()}
    assert threads == {"meshrt-control"}
