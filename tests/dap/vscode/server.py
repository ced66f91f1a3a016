"""VS Code's server for a browser, with everything that it keeps in a folder of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.dap.vscode.family import Family
from tests.dap.vscode.installed import HERE, code_server
from tests.support.programs import environment

__all__ = ["CodeServer"]

#: What a person would have clicked away, and what would be looked for in the network.
_SETTINGS: dict[str, Any] = {
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": True,
    "extensions.autoCheckUpdates": False,
    "git.enabled": False,
    "remote.autoForwardPorts": False,
    # It saves what is typed, and keys that go astray must not change the sources of the tests.
    "files.readonlyInclude": {"**/*.py": True},
}


class CodeServer(Family):
    """A running code-server, which serves one page to this machine, at any port.

    Args:
        folder: What it keeps. A short path: sockets are made in there.
    """

    def __init__(self, folder: Path) -> None:
        extensions, user, scratch = (folder / name for name in ("extensions", "user", "tmp"))
        for each in (extensions, user / "User", scratch):
            each.mkdir(parents=True)
        (user / "User" / "settings.json").write_text(json.dumps(_SETTINGS))
        (extensions / "meshrt.debugpy-stand-in-1.0.0").symlink_to(HERE / "extension")
        options = {
            "auth": "none",
            "bind-addr": "127.0.0.1:0",
            "config": str(folder / "config.yaml"),
            "extensions-dir": str(extensions),
            "user-data-dir": str(user),
        }
        super().__init__(
            [
                *code_server(),
                *(f"--{name}={value}" for name, value in options.items()),
                "--disable-telemetry",
                "--disable-update-check",
                "--disable-workspace-trust",
            ],
            environment(TMPDIR=str(scratch), MESHRT_TEST_VSCODE=str(folder)),
        )

    def url(self) -> str:
        """Where it serves; waits until it does."""
        while True:
            (line,) = self.said()
            _, listening, url = line.partition("HTTP server listening on ")
            if listening:
                return url.rstrip("/")
