"""What other tools than meshrt's show of a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshrt import proc_mesh
from meshrt.mesh.program import start_root
from tests.support.waiting import wait_until

WAIT = 20
OF_TWO: dict[str, Any] = {"hosts": 1, "gpus": 3}
OF_NONE: dict[str, Any] = {}


@pytest.mark.parametrize(("sizes", "rank", "name"), [(OF_TWO, 2, "rank 2 (hosts=0, gpus=2)"), (OF_NONE, 0, "rank 0")])
def test_a_rank_says_what_it_is(sizes: dict[str, Any], rank: int, name: str) -> None:
    mesh = proc_mesh(name="train", **sizes)
    mesh.initialized.get(WAIT)
    file = Path(f"/proc/{start_root().registry.meshes[mesh.mesh_id].pids[rank]}/cmdline")
    wait_until(lambda: file.read_text().startswith(f"meshrt: train {name} of "), WAIT)
