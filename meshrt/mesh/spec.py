"""The request for a mesh, checked before anything is started."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from meshrt.errors import UsageError
from meshrt.mesh.environment import POST_MORTEM, EnvOption, check_switches, checked_env, env_of_ranks
from meshrt.mesh.shown import Shown, parse_shown
from meshrt.selection import Extent, Shape
from meshrt.wire.operations import SpawnMesh

__all__ = ["Devices", "MeshSpec", "PostMortem", "check_name", "check_port", "check_watchdog", "default_sizes"]

PostMortem = bool | Literal["dump"] | None
Devices = Literal["all", "own"]

_POST_MORTEM = {True: "1", False: "0", "dump": "dump"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_GPUS = "CUDA_VISIBLE_DEVICES"


def check_name(what: str, name: object) -> str:
    """Return ``name`` if it can be typed at a prompt and be part of a file name. Raises UsageError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{what} is named with a letter or '_', then letters, digits, '_' or '-' (64 at most), not {name!r}"
        )
    return name


def check_watchdog(seconds: object) -> float:
    """Return ``seconds`` if it is a time to wait. Raises UsageError."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 < seconds < math.inf:  # type: ignore[operator]  # it is a number then
        raise UsageError(f"watchdog is a positive number of seconds, not {seconds!r}")
    return float(seconds)  # type: ignore[arg-type]  # as above


def check_port(port: object) -> None:
    """Raise UsageError if ``dap=`` is no port number."""
    if type(port) is not int or not 0 <= port <= 65535:
        raise UsageError(f"dap is a port, a number from 0 (any) to 65535, not {port!r}")


def default_sizes() -> dict[str, int]:
    """Return the GPUs of this machine as dimension ``gpus``, or no dimension at all."""
    visible = os.environ.get(_GPUS)
    if visible is not None:
        count = len([device for device in visible.split(",") if device.strip() not in ("", "-1")])
    else:
        count = len([*Path("/proc/driver/nvidia/gpus").glob("*")])
    return {"gpus": count} if count else {}


class MeshSpec(msgspec.Struct, frozen=True):
    """A checked request for processes."""

    name: str
    extent: Extent
    env: Mapping[str, str]
    #: Per rank, where ``env`` was a function.
    rank_env: Mapping[int, Mapping[str, str]]
    setup: Callable[[], object] | None
    preload: tuple[str, ...]
    #: Each rank sees the GPU whose place among those of its host is its own place among the ranks there.
    own_devices: bool = False
    #: Its ranks run a script: their lines are shown as they are, and one that ends with exit status 0 ends well.
    script: bool = False
    #: What it shows of the output at all; None: what holds for the program.
    shown: Shown | None = None
    #: Its failures interrupt no wait of the script: it has no owner (`meshrt.mesh.singletons`).
    singleton: bool = False
    #: Where processes that something else starts become its ranks (`meshrt.host.meeting`); "": it is their parent.
    meeting: str = ""

    @classmethod
    def make(
        cls,
        name: str,
        sizes: Mapping[str, int],
        env: EnvOption,
        setup: Callable[[], object] | None,
        preload: Iterable[str],
        post_mortem: PostMortem = None,
        devices: Devices = "all",
        *,
        logs: str | None = None,
        script: bool = False,
        meeting: str = "",
    ) -> MeshSpec:
        """Check what the user gave. Raises UsageError."""
        for label, size in sizes.items():
            if type(size) is not int or size < 1:
                raise UsageError(
                    f"{label}={size!r}: a dimension has a size, an integer of 1 or more "
                    "(options are name, env, setup, preload, post_mortem, devices, watchdog, dap, logs, engine)"
                )
        try:
            extent = Extent(tuple(sizes), tuple(sizes.values()))
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from None
        shown = None if logs is None else parse_shown(logs, "logs=")
        if shown is not None:
            shown.members(Shape.from_extent(extent), strict=True)
        if setup is not None and not callable(setup):
            raise UsageError(f"setup is a function without arguments, not {type(setup).__name__}")
        if inspect.isgeneratorfunction(setup) or inspect.isasyncgenfunction(setup):
            raise UsageError("setup is a generator function: calling it does not run its body; write it without yield")
        if isinstance(preload, str):
            raise UsageError(f"preload is a list of module names, not the string {preload!r}")
        modules = tuple(preload)
        for module in modules:
            if not isinstance(module, str):
                raise UsageError(f"preload is a list of module names, not of {type(module).__name__}")
        rank_env: dict[int, Mapping[str, str]] = {}
        common: Mapping[str, str] = {}
        if callable(env):
            rank_env = env_of_ranks(env, extent)
        elif env is not None:
            common = checked_env(env)
        if post_mortem is not None:
            if not (isinstance(post_mortem, bool) or post_mortem == "dump"):
                raise UsageError(f"post_mortem is True, False or 'dump', not {post_mortem!r}")
            common = {**common, POST_MORTEM: _POST_MORTEM[post_mortem]}
        check_switches(os.environ)
        own = _checked_devices(devices, [common, *rank_env.values()])
        checked = check_name("a mesh", name) if name else ""
        return cls(checked, extent, common, rank_env, setup, modules, own, script, shown, meeting=meeting)

    def to_request(self, actor: str, mesh_id: str, ranks: Sequence[int]) -> SpawnMesh:
        """Return the request of a rank for it, without the set-up function (which is sent with the handle).

        Args:
            actor: The actor that makes it; "": none does.
            mesh_id, ranks: On whose hosts it is to be; "": where the root decides.
        """
        rank_env = list(self.rank_env.items())
        sizes = list(self.extent.items())
        logs = "" if self.shown is None else self.shown.text
        return SpawnMesh(
            actor,
            self.name,
            sizes,
            self.env,
            rank_env,
            self.preload,
            mesh_id,
            ranks,
            own_devices=self.own_devices,
            logs=logs,
        )

    @classmethod
    def of_request(cls, request: SpawnMesh) -> MeshSpec:
        """Return what a rank has asked for. Raises UsageError."""
        sizes, logs = dict(request.sizes), request.logs or None
        spec = cls.make(request.mesh_name, sizes, request.env, None, request.preload, logs=logs)
        rank_env = {rank: checked_env(env) for rank, env in request.rank_env}
        return replace(spec, rank_env=rank_env, own_devices=request.own_devices)


def _checked_devices(devices: object, environments: Iterable[Mapping[str, str]]) -> bool:
    if devices not in ("all", "own"):
        raise UsageError(f"devices is 'all' or 'own', not {devices!r}")
    if devices == "own" and any(_GPUS in env for env in environments):
        raise UsageError(f"devices='own' and env= both set {_GPUS}: use only one of them")
    return devices == "own"
