"""What an editor offers behind a dot: endpoints and what every mesh has, asked of pyright as an editor asks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import ROOT, environment

pytest.importorskip("pyright", reason="not installed: pyright (pip install --group types)")

CODE = '''\
from meshrt import Actor, ActorMesh, endpoint, proc_mesh

class Trainer(Actor):
    loss: float = 0.0

    @endpoint
    def step(self, batch: list[float]) -> float:
        """Train on a batch."""
        return 0.0

trainers = proc_mesh(gpus=2).spawn("trainer", Trainer)

def reset(given: ActorMesh[Trainer]) -> None:
    given.  # @handle

trainers.  # @mesh
trainers.step.  # @endpoint
trainers.step.call([1.0]).  # @future
trainers.step.call(  # @arguments
'''


class Editor:
    """The client of a language server."""

    def __init__(self, server: subprocess.Popen[bytes], folder: Path) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._uri = (folder / "train.py").as_uri()
        self.ask("initialize", processId=os.getpid(), rootUri=folder.as_uri(), capabilities={})
        self.tell("initialized")
        document = {"uri": self._uri, "languageId": "python", "version": 1, "text": CODE}
        self.tell("textDocument/didOpen", textDocument=document)

    def tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            if "method" in message and "id" in message:  # what the server asks: settings, of which there are none
                items = message.get("params", {}).get("items", [])
                self._send({"id": message["id"], "result": [None] * len(items)})

    def at(self, mark: str, method: str) -> Any:
        """Ask about the place before a comment."""
        number, line = next(pair for pair in enumerate(CODE.splitlines()) if pair[1].endswith(f"# @{mark}"))
        position = {"line": number, "character": line.index("  #", len(line) - len(line.lstrip()))}
        return self.ask(f"textDocument/{method}", textDocument={"uri": self._uri}, position=position)

    def offered(self, mark: str) -> set[str]:
        return {item["label"] for item in self.at(mark, "completion")["items"]}

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._server.stdin is not None
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._server.stdin.flush()

    def _read(self) -> dict[str, Any]:
        stdout = self._server.stdout
        assert stdout is not None
        length = 0
        while line := stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server has ended"
        message: dict[str, Any] = json.loads(stdout.read(length))
        return message


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    settings = {"extraPaths": [str(ROOT)], "pythonVersion": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as server:
        try:
            yield Editor(server, tmp_path)
        finally:
            server.kill()


@pytest.mark.timeout(120)
def test_an_editor_offers_endpoints_and_what_a_mesh_has(editor: Editor) -> None:
    for mark in ("mesh", "handle"):
        offered = editor.offered(mark)
        assert {"step", "loss", "slice", "select", "size", "endpoint", "stop"} <= offered, mark
    assert {"call", "call_one", "broadcast", "stream", "map", "reduce", "options"} <= editor.offered("endpoint")
    assert {"get", "cancel", "exception", "add_done_callback"} <= editor.offered("future")
    (signature,) = editor.at("arguments", "signatureHelp")["signatures"]
    assert signature["label"] == "(batch: list[float]) -> Future[ValueMesh[float]]"
