"""What runs in Ray's worker, without Ray."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

from meshrt.engine.ray_host import HostAgent

#: In place of the agent's program: says what it gets.
ECHO = """
import os, sys
print(sys.argv[1:], sys.stdin.read(), os.environ["MARK"], os.environ.get("PYTHONBREAKPOINT"), file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "agent_main.py"
    spec = importlib.machinery.ModuleSpec("meshrt.engine.agent_main", None, origin=str(path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    path.write_text(ECHO)
    return path


def output_of(agent: HostAgent) -> tuple[bytes, int]:
    said = b""
    while isinstance(part := agent.read(), bytes):
        said += part
    return said, part


def test_the_agent_gets_its_invitation_and_what_it_writes_comes_back(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "ray.util.rpdb.set_trace")
    agent = HostAgent()
    host, problem = agent.start(b"secret", {"MARK": "cafe.1"})
    assert host and not problem
    assert output_of(agent) == (b"['-'] secret cafe.1 None\n", 3)


def test_a_breakpoint_of_the_user_is_kept(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    agent = HostAgent()
    agent.start(b"", {"MARK": "m"})
    assert output_of(agent)[0] == b"['-']  m 0\n"


def test_its_end_is_told_although_a_child_keeps_the_pipe_open(program: Path) -> None:
    program.write_text("import os, time\nif os.fork() == 0:\n    time.sleep(5)\n")
    agent = HostAgent()
    agent.start(b"", {"MARK": "m"})
    assert output_of(agent) == (b"", 0)


def test_a_node_without_meshrt_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert HostAgent().start(b"", {})[1] == f"{sys.executable} cannot import meshrt.engine.agent_main there"

    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'meshrt'")

    monkeypatch.setattr(importlib.util, "find_spec", fail)
    assert HostAgent().start(b"", {})[1].endswith("agent_main there: No module named 'meshrt'")


def test_it_needs_nothing_but_the_standard_library() -> None:
    import meshrt.engine.ray_host as module

    # pytest adds names of its own to the modules of a plug-in's distribution.
    imports = {name for name, value in vars(module).items() if hasattr(value, "__spec__") and name[0] != "@"}
    assert imports <= {"contextlib", "importlib", "os", "select", "socket", "subprocess", "sys"}
