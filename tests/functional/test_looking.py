"""What tools that only look ask of a program: none of it loads the debugger there."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt import Actor, endpoint, proc_mesh
from meshrt.mesh.program import start_root
from meshrt.transport import tools
from tests.support.untyped import asked

WAIT = 30


class Idle(Actor):
    """Does nothing."""

    @endpoint
    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("operation", "body", "key"),
    [
        ("inspect.status", {"hosts": True}, "groups"),  # meshrt ps
        ("inspect.list", {"state": "all", "ranks": "running", "memory": True, "hosts": True}, "rows"),
        ("inspect.where", {"ranks": "running"}, "meshes"),  # a rank in meshrt top
        ("inspect.printing", {"ranks": "running"}, "printing"),  # meshrt logs
        ("top.look", {"ranks": "running"}, "ranks"),
        ("memory.look", {"ranks": "running", "variables": True, "frames": True}, "ranks"),
        ("timeline.begin", {"ranks": "running"}, "recording"),
    ],
)
def test_who_only_looks_does_not_load_the_debugger(operation: str, body: dict[str, Any], key: str) -> None:
    idle = proc_mesh(n=2).spawn("idle", Idle)
    idle.step.call().get(WAIT)
    program = tools.own_program()
    assert program is not None
    connection = tools.connect(program)
    try:
        assert connection.ask(asked(operation, **body), WAIT)[key]
    finally:
        connection.close()
    assert not [name for name in start_root().services._tool_operations if name.startswith("debug.")]
