"""``meshrt dap`` as its user starts it, and IDEs that attach to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meshrt.hooks.facts import Body
from tests.dap.client import Address
from tests.dap.ide import Ide
from tests.support.programs import environment

__all__ = ["Router", "router"]


class Router:
    """A running ``meshrt dap``."""

    def __init__(self, process: subprocess.Popen[str], address: Address, configuration: Body) -> None:
        self.process = process
        self.address = address
        #: What it has printed for launch.json, or has written there.
        self.configuration = configuration

    @property
    def token(self) -> str:
        """What its configuration shows."""
        return str(self.configuration["meshToken"])

    def ide(self, *, start_debugging: bool = True, **more: Any) -> Ide:
        """An IDE with its launch configuration, and ``more`` keys in it."""
        return Ide(self.address, {**self.configuration, **more}, start_debugging=start_debugging)


@contextmanager
def router(*options: str, pid: int = 0, complaint: str = "") -> Iterator[Router]:
    """Run ``meshrt dap`` for a program, this one by default; ends it with Ctrl-C, and checks how it ends.

    Args:
        complaint: What it says on its standard error.
    """
    with tempfile.TemporaryFile("w+") as errors:
        env = environment()
        command = [sys.executable, "-m", "meshrt", "dap", str(pid or os.getpid()), *(options or ("--port", "0"))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) as process:
            try:
                yield Router(process, *_told(process, options))
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    assert process.wait(30) == 0
            finally:
                process.kill()
                errors.seek(0)
                said = errors.read()
        print(said, file=sys.stderr)
    assert complaint in said if complaint else not said, said


def _told(process: subprocess.Popen[str], options: tuple[str, ...]) -> tuple[Address, Body]:
    assert process.stdout is not None
    first = process.stdout.readline().rstrip()
    if "--socket" in options:
        assert first.endswith(f"at {options[-1]}"), first
        return options[-1], {}
    assert " at 127.0.0.1:" in first, first
    if "--write-launch-json" in options:
        path, _, said = process.stdout.readline().partition(": ")
        assert said == "the entry 'meshrt' attaches\n", said
        return _found(json.loads(Path(path).read_text())["configurations"][-1])
    lines = [process.stdout.readline()]
    assert "launch.json" in lines.pop()
    while not lines or lines[-1].rstrip() != "}":
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    return _found(json.loads("".join(lines)))


def _found(configuration: Body) -> tuple[Address, Body]:
    connect = configuration["connect"]
    return (connect["host"], connect["port"]), configuration
