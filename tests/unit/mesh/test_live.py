"""Which setting holds for a mesh, and which ranks it shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshrt.errors import SelectionError
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.record import MeshRecord
from meshrt.mesh.shown import Shown, parse_shown
from meshrt.selection import Shape
from meshrt.transport.driver import Driver
from tests.unit.mesh.root_fakes import FakeAgent, record
from tests.unit.transport.fake_rank import SECRET, FakeTree


@pytest.fixture
def mesh() -> Iterator[MeshRecord]:
    driver = Driver(SECRET, FakeTree())
    yield record(driver, FakeAgent())
    driver.close()


def test_a_mesh_has_its_own_setting_or_that_of_the_program(mesh: MeshRecord) -> None:
    live = LiveLogs(Shown())

    def shown() -> tuple[str, set[int]]:
        found = live.of(mesh)
        assert live.of(mesh) is found  # is not resolved again for each line
        return found.scope, set(found.ranks)

    assert shown() == ("", {0, 1})
    live.set_program(parse_shown("ranks(0)", ""))
    assert shown() == ("", {0})
    live.set_mesh(mesh, parse_shown("ranks(n=1)", ""))
    assert shown() == ("m", {1})
    live.set_program(parse_shown("off", ""))
    assert shown() == ("m", {1})
    live.set_mesh(mesh, None)
    assert shown() == ("", set())
    live.set_program(None)
    assert shown() == ("", {0, 1})
    with pytest.raises(SelectionError, match="dimension 'gpus'"):
        live.set_mesh(mesh, parse_shown("ranks(gpus=0)", ""))
    assert shown() == ("", {0, 1})


def test_other_names_of_the_dimensions_count_at_once(mesh: MeshRecord) -> None:
    live = LiveLogs(parse_shown("ranks(dp=1)", ""))
    assert live.of(mesh).ranks == {0, 1}
    mesh.name_dimensions(Shape.from_extent({"dp": 2}))
    assert live.of(mesh).ranks == {1}
