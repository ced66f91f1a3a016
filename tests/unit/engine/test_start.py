"""What a script calls first: its options, before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.engine.start import proc_mesh
from meshrt.errors import UsageError
from meshrt.mesh import proc_mesh as module
from meshrt.mesh.hosts import Hosts
from meshrt.mesh.spec import MeshSpec


def test_each_option_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[MeshSpec, Hosts]] = []
    monkeypatch.setattr(module, "start_mesh", lambda spec, hosts: asked.append((spec, hosts)))
    proc_mesh(name="train", preload=["json"], post_mortem=True, devices="own", logs="off", dp=2, pp=3)
    ((spec, hosts),) = asked
    assert spec.extent.labels == ("dp", "pp") and spec.extent.sizes == (2, 3)
    assert (spec.name, spec.preload, spec.own_devices) == ("train", ("json",), True)
    assert spec.env["MESHRT_POST_MORTEM"] == "1"
    assert spec.shown is not None and spec.shown.nothing and hosts.engine is None


@pytest.mark.parametrize(
    ("option", "said"), [({"watchdog": 0}, "watchdog"), ({"dap": -1}, "dap"), ({"engine": "slurm"}, "slurm")]
)
def test_what_is_refused(option: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "start_mesh", lambda _spec, _hosts: pytest.fail("it was started"))
    with pytest.raises(UsageError, match=said):
        proc_mesh(n=1, **option)
