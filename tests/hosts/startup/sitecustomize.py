"""Every Python with this folder on its path has two hosts as its default engine, once it has imported meshrt.

Python imports a module of this name when it starts. So this works in scripts that tests start, as it does in the tests.
It loads nothing by itself: tests compare what a process has loaded.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from meshrt.mesh.engine import Placed, Program, Request

__all__ = ["COMMANDS", "TwoHosts"]

#: An environment variable: names of hosts, and what the command begins with that starts an agent there, as JSON.
COMMANDS = "MESHRT_TEST_HOSTS"
_ENGINE = "meshrt.mesh.default_engine"


class _Quiet:
    """A program that is not told what is waited for: that depends on the load, and tests compare what is printed."""

    def __init__(self, program: Program) -> None:
        self.run_id = program.run_id
        self.directory = program.directory
        self.new_mark = program.new_mark
        self.invite = program.invite

    def announce(self, text: str) -> None:
        """Write nothing."""


@dataclass(frozen=True)
class TwoHosts:
    """The engine of meshes that name none. One whose hosts or ranks cannot be halved has all of them on one host."""

    hosts: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the dimensions of a mesh: as on one machine."""
        from meshrt.mesh.spec import default_sizes  # start-up: this module is loaded by every process

        return dict(given) or default_sizes()

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """Return the agents for a mesh."""
        from meshrt.engine.command import CommandEngine  # start-up: as above

        count = math.gcd(len(self.hosts), request.hosts or request.ranks)
        engine = CommandEngine(self.hosts, self.commands)
        return engine.place(_Quiet(program), replace(request, hosts=count), living)


class _Finder:
    """Sets the default engine right after the module was loaded that keeps it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _ENGINE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module
        commands = json.loads(os.environ[COMMANDS])

        def execute_and_set(module: ModuleType) -> None:
            execute(module)
            module.use_engine(TwoHosts(tuple(commands), tuple(map(tuple, commands.values()))))

        spec.loader.exec_module = execute_and_set  # type: ignore[method-assign]
        return spec


if COMMANDS in os.environ and __name__ == "sitecustomize":
    sys.meta_path.insert(0, _Finder())
