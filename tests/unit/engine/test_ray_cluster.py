"""The connection to Ray: made where there is none, and only then."""

from __future__ import annotations

import os
import signal
import socket
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from meshrt.engine.ray_cluster import Actor, connect
from meshrt.errors import SpawnError


class Ray(ModuleType):
    def __init__(self, connected: bool, error: Exception | None = None) -> None:
        super().__init__("ray")
        self.connected, self.error = connected, error
        self.inits: list[dict[str, Any]] = []
        self.exceptions = SimpleNamespace(GetTimeoutError=TimeoutError)

    def is_initialized(self) -> bool:
        return self.connected

    def get(self, reference: Exception, timeout: float | None) -> None:
        raise reference

    def init(self, **options: Any) -> None:
        self.inits.append(options)
        signal.signal(signal.SIGTERM, lambda *_: None)
        os.environ["PYTHONBREAKPOINT"] = "ray.util.rpdb._driver_set_trace"
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)


def test_a_program_that_is_connected_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(connected=True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    connect()
    assert not ray.inits


def test_signals_and_breakpoints_stay_the_script_s(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(connected=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    before = signal.getsignal(signal.SIGTERM)
    connect()
    assert ray.inits[0]["address"] == "auto"
    assert signal.getsignal(signal.SIGTERM) is before and "PYTHONBREAKPOINT" not in os.environ


def test_no_cluster_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(connected=False, error=ConnectionError("Could not find any running Ray instance.\nPlease ..."))
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(SpawnError, match=r"no Ray cluster can be reached from here: Could not find any .*; start one"):
        connect()


def test_a_cluster_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ray = Ray(connected=False)
    services = SimpleNamespace(canonicalize_bootstrap_address=lambda address: f"127.0.0.1:{port}")
    ray._private = SimpleNamespace(services=services)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(SpawnError, match=rf"no Ray cluster can be reached from here: 127.0.0.1:{port} does not answer"):
        connect()
    assert not ray.inits


def test_no_ray_is_one_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpawnError, match=r'engine="ray" needs the package ray, .* install .*ray'):
        connect()


def test_a_call_does_not_connect_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", Ray(connected=False))
    with pytest.raises(ChildProcessError, match="not connected to Ray any more"):
        Actor(object()).call("read")
    Actor(object()).kill()


def reason_of(error: Exception) -> str:
    with pytest.raises(ChildProcessError) as raised:
        Actor(SimpleNamespace(read=SimpleNamespace(remote=lambda: error))).call("read").get()
    return str(raised.value)


def test_what_ray_says_of_an_end_is_the_reason_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", Ray(connected=True))
    died = "The actor died unexpectedly.\n\tclass_name: HostAgent\nThe actor is dead because its node\nhas died."
    assert reason_of(RuntimeError(died)) == "The actor is dead because its node has died."
    failed = "Failed to set up.\n" + "  File ...\n" * 100 + "Error: install virtualenv"
    assert reason_of(RuntimeError(failed)).startswith("Failed to set up. ... ")
    assert reason_of(RuntimeError(failed)).endswith("Error: install virtualenv")
    assert reason_of(RuntimeError("Short,\nand why")) == "Short, and why"
