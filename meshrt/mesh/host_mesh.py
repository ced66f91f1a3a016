"""``HostMesh``: hosts that processes are started on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

from meshrt.actor.errors import why_ended
from meshrt.errors import UsageError
from meshrt.mesh.environment import EnvOption
from meshrt.mesh.future import Future, done
from meshrt.mesh.hosts import Hosts, grace_of
from meshrt.mesh.owner import owner_for_new
from meshrt.mesh.several import all_done
from meshrt.mesh.spec import Devices, MeshSpec, PostMortem
from meshrt.selection import MeshTrait, Shape
from meshrt.transport.threads import on_event_loop

if TYPE_CHECKING:
    from meshrt.mesh.proc_mesh import ProcMesh

__all__ = ["HostMesh"]


class HostMesh(MeshTrait):
    """Hosts that processes can be started on. A context manager: its end stops what was started through it."""

    def __init__(
        self, spawn: Callable[[MeshSpec, Hosts], ProcMesh], shape: Shape, hosts: Hosts, names: tuple[str, ...] = ()
    ) -> None:
        self._spawn = spawn
        self._own_shape = shape
        self._hosts = hosts
        self._names = names
        self._started: list[ProcMesh] = []

    @property
    def _shape(self) -> Shape:
        return self._own_shape

    def _with_shape(self, shape: Shape) -> Self:
        known = dict(zip(self._own_shape.ndslice, self._names, strict=False))
        names = tuple(known[rank] for rank in shape.ndslice) if known else ()
        return type(self)(self._spawn, shape, self._hosts, names)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order; empty where they are not placed yet, or this process has not been told."""
        return self._names

    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        bootstrap: Callable[[], object] | None = None,
        name: str = "",
        *,
        env: EnvOption = None,
        preload: Iterable[str] = (),
        post_mortem: PostMortem = None,
        devices: Devices = "all",
        logs: str | None = None,
    ) -> ProcMesh:
        """Start processes on every host: ``this_host().spawn_procs(per_host={"gpus": 4})``.

        The dimensions of the mesh are those of the hosts, then those of ``per_host``.

        Args:
            per_host: Dimension to size; none means one process.
            bootstrap: As ``setup`` of `proc_mesh`.
            name, env, preload, post_mortem, devices, logs: As in `proc_mesh`.
        Raises:
            UsageError: A size, a name or an option is invalid, or a dimension is there twice.
            SpawnError: A host cannot hold so many processes, or is lost.
        """
        sizes = dict(per_host or {})
        twice = sorted(sizes.keys() & self.sizes.keys())
        if twice:
            raise UsageError(f"{twice[0]} is a dimension of the hosts already; give that of the processes another name")
        sizes = {**self.sizes, **sizes}
        spec = MeshSpec.make(name, sizes, env, bootstrap, preload, post_mortem, devices, logs=logs)
        mesh = self._spawn(spec, self._hosts._replace(members=tuple(self._own_shape.ndslice)))
        self._started = [*(other for other in self._started if not other._has_stopped()), mesh]
        return mesh

    def stop(self, grace: float = 5.0) -> Future[None]:
        """Stop every mesh that was started through this handle, all at once. See `ProcMesh.stop`.

        Returns a future; off an event loop it has been waited for already.
        """
        try:
            self._tell_failed(sys.exc_info()[1])
        finally:
            futures = self._stop_all(grace, "")
        return all_done(futures) if futures else done(owner_for_new().driver)

    def _stop_all(self, grace: float, why: str) -> list[Future[None]]:
        started, self._started = self._started, []
        futures, problems = [], []
        for mesh in started:
            try:
                futures.append(mesh._begin_stop(grace, why))
            except UsageError as error:  # the others are to end all the same
                problems.append(error)
        if not on_event_loop():
            for future in futures:
                future.get()
        if problems:
            raise problems[0]
        return futures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _rest: object) -> None:
        try:
            self._leave(error)
        finally:
            self._stop_all(grace_of(kind), why_ended(error))

    def _tell_failed(self, error: BaseException | None) -> None:
        for mesh in self._started:
            mesh._tell_failed(error)

    def _leave(self, error: BaseException | None) -> None:
        for mesh in self._started:
            mesh._leave(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _rest: object) -> None:
        try:
            self._leave(error)
        finally:
            for future in self._stop_all(grace_of(kind), why_ended(error)):
                await future

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostMesh):
            return NotImplemented
        return (self._hosts, self._own_shape) == (other._hosts, other._own_shape)

    def __hash__(self) -> int:
        return hash((self._hosts.mesh_id, self._own_shape))

    def __repr__(self) -> str:
        if self._hosts == Hosts():
            return "<HostMesh of this host>"
        sizes = ", ".join(f"{label}={size}" for label, size in self.sizes.items())
        return f"<HostMesh {', '.join(self._names) or 'not placed yet'} ({sizes or 'one host'})>"

    def __reduce__(self) -> tuple[object, ...]:
        if not self._hosts.mesh_id:
            raise TypeError("hosts of an engine belong to the script; send those of a mesh: mesh.hosts")
        hosts = Hosts(mesh_id=self._hosts.mesh_id)  # an engine stays in the script
        return HostMesh, (self._spawn, self._own_shape, hosts, self._names)
