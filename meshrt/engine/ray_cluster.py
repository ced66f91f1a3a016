"""Ray, as its engine uses it. The only module that knows names of Ray.

Ray connects a process by itself when a function of it is called, also behind the end of an earlier connection: where
that may be, it is asked first whether it is connected.

Its objects have no types here: Ray is seldom installed where this is checked.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

from meshrt.engine import ray_host
from meshrt.engine.ray_needs import Node, Resources
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.program import end_first
from meshrt.show.installing import install_extra

__all__ = ["Actor", "Group", "Reply", "connect", "nodes"]

_DEBUGGER = "PYTHONBREAKPOINT"
#: Resources that an actor asks for by an option of its own.
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
#: Seconds for which Ray is asked at once: Ctrl-C is noticed between two questions.
_POLL = 1
#: Seconds for the cluster to answer.
_ANSWER = 5.0
#: What Ray's text says at last of an actor that has ended, and how much of that is shown.
_BECAUSE = "The actor is dead because"
_LONG = 300
_NUMBERS = itertools.count()


def connect() -> None:
    """Connect this process to its Ray cluster, unless it is connected already. Any thread.

    Raises:
        SpawnError: Ray is not installed, or there is no cluster.
    """
    ray = _ray()
    end_first()  # Ray ends its actors when this process ends, by `atexit`
    if ray.is_initialized():
        return
    with _kept_as_it_was():
        try:
            _check_that_it_answers(ray)
            ray.init(address="auto", log_to_driver=False, logging_level=logging.WARNING)
        except Exception as error:  # of many types: ConnectionError, RuntimeError, those of gRPC
            raise SpawnError(
                f'engine="ray": no Ray cluster can be reached from here: {_first_line(error).rstrip(".")}; '
                "start one with ray start --head, name another with RAY_ADDRESS, or call ray.init(...) before the mesh "
                "is made"
            ) from error


def nodes() -> list[Node]:
    """Return the nodes that live."""
    ray = _ray()
    living = [row for row in ray.nodes() if row["Alive"]]
    try:
        free = ray._private.state.available_resources_per_node()  # there is no public function for this
    except Exception:  # a client of Ray (ray://) cannot ask; what a node has stands for what it has free
        free = {}
    return [
        Node(row["NodeID"], row["NodeManagerHostname"], row["Resources"], free.get(row["NodeID"], row["Resources"]))
        for row in living
    ]


class Reply(Protocol):
    """A call of an actor that has been made."""

    def get(self, seconds: float | None = None) -> Any:
        """Wait for its result: what the method of `HostAgent` returns.

        Raises:
            TimeoutError: It has not come in time.
            ChildProcessError: The actor has ended; the text is what Ray says of that.
        """


class Actor:
    """The actor of one host. Any thread."""

    def __init__(self, handle: object) -> None:
        self._handle = handle

    def call(self, name: str, *arguments: object) -> Reply:
        """Call a method of `HostAgent`. Raises ChildProcessError: this process is not connected to Ray any more."""
        if not _ray().is_initialized():
            raise ChildProcessError("this process is not connected to Ray any more")  # the call would connect it
        return _Call(getattr(self._handle, name).remote(*arguments))

    def kill(self) -> None:
        """End Ray's worker, and with it the agent."""
        ray = _ray()
        with contextlib.suppress(Exception):  # Ray knows it no more
            if ray.is_initialized():
                ray.kill(self._handle, no_restart=True)


class _Call:
    def __init__(self, reference: object) -> None:
        self._reference = reference

    def get(self, seconds: float | None = None) -> object:
        ray = _ray()
        try:
            return ray.get(self._reference, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError from None
        except Exception as error:  # of several types; some are no RayError, for example where Ray is disconnected
            raise ChildProcessError(_reason(error)) from None


class Group:
    """A placement group: a bundle of resources for each host. Any thread.

    It is removed when the last of its agents has ended, or when it is closed.

    Args:
        name: As `ray list placement-groups` shows it.
        bundle: The resources of each host.
        hosts: How many hosts there are.
        strategy: Ray's word for how bundles are divided among nodes.
        apart: Numbers of nodes that get none.

    Attributes:
        number: Sorts groups by age.

    Raises:
        UsageError: Ray refuses the resources.
    """

    def __init__(self, name: str, bundle: Resources, hosts: int, strategy: str, apart: Sequence[str]) -> None:
        from ray.util import placement_group  # optional: Ray

        self.number = next(_NUMBERS)
        self.bundle = bundle
        self.hosts = hosts
        self.apart = frozenset(apart)
        self._free = list(range(hosts))
        self._taken: set[int] = set()
        self._removed = False
        self._lock = threading.Lock()
        more: dict[str, object] = {}
        if apart:
            more["bundle_label_selector"] = [{"ray.io/node-id": f"!in({', '.join(apart)})"}] * hosts
        try:
            self._group = placement_group([dict(bundle)] * hosts, strategy=strategy, name=name, **more)
        except ValueError as error:
            raise UsageError(f"Ray refuses {dict(bundle)}: {error}") from None

    def ready(self) -> bool:
        """Wait a moment for Ray to place all bundles; returns whether it has."""
        placed: bool = self._group.wait(_POLL)
        return placed

    def places(self) -> dict[int, str]:
        """Return the number of the node of each bundle that is placed."""
        from ray.util import placement_group_table  # optional: Ray

        placed = placement_group_table(self._group)["bundles_to_node_id"]
        return {int(bundle): node for bundle, node in placed.items() if node}

    def node_of(self, bundle: int) -> str:
        """Return the name of the node of a bundle, for a message."""
        number = self.places().get(bundle, "")
        return next((node.host for node in nodes() if node.identity == number), number or "that Ray has lost")

    def take(self, most: int) -> list[int]:
        """Take free bundles, at most so many. Each is given back with `release`."""
        with self._lock:
            taken = [] if self._removed else sorted(self._free)[:most]
            self._free = [bundle for bundle in self._free if bundle not in taken]
            self._taken.update(taken)
            return taken

    def start(self, bundle: int, runtime_env: Mapping[str, object] | None) -> Actor:
        """Start the actor of a bundle; it has all resources of it, and sees its GPUs alone.

        Raises:
            UsageError: Ray refuses the environment.
        """
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # optional: Ray

        ray = _ray()
        ray.cloudpickle.register_pickle_by_value(ray_host)
        try:
            actor = ray.remote(ray_host.HostAgent)
            options: dict[str, object] = {"num_cpus": 0, "resources": {}}
            for name, amount in self.bundle.items():
                if name in _OPTIONS:
                    options[_OPTIONS[name]] = amount
                else:
                    options["resources"] = {**options["resources"], name: amount}  # type: ignore[dict-item]
            if runtime_env:
                options["runtime_env"] = dict(runtime_env)
            place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
            return Actor(actor.options(scheduling_strategy=place, **options).remote())
        except (TypeError, ValueError) as error:
            raise UsageError(f"Ray refuses the actor of a host: {_first_line(error)}") from error
        finally:
            ray.cloudpickle.unregister_pickle_by_value(ray_host)

    def release(self, bundle: int) -> None:
        """The agent of a bundle has ended."""
        with self._lock:
            self._taken.discard(bundle)
            self._free.append(bundle)
            if self._taken or self._removed:
                return
            self._removed = True
        from ray.util import remove_placement_group  # optional: Ray

        with contextlib.suppress(Exception):  # Ray has removed it
            if _ray().is_initialized():
                remove_placement_group(self._group)


def _ray() -> ModuleType:
    try:
        import ray  # optional: Ray
    except ImportError as error:
        command = install_extra("ray", "ray")
        raise SpawnError(f'engine="ray" needs the package ray, which cannot be imported ({error}): {command}') from None
    module: ModuleType = ray
    return module


def _check_that_it_answers(ray: ModuleType) -> None:
    """Raise ConnectionError if the cluster does not: Ray itself would wait for it for minutes."""
    if "://" in os.environ.get("RAY_ADDRESS", ""):
        return  # not the address of a cluster, but of a server for clients
    with contextlib.suppress(AttributeError):  # there is no public function for this
        address: str | None = ray._private.services.canonicalize_bootstrap_address("auto")
        if address is not None:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
            except OSError as error:
                raise ConnectionError(f"{address} does not answer ({error})") from None


@contextlib.contextmanager
def _kept_as_it_was() -> Iterator[None]:
    """Undo what Ray changes in this process beside what it is asked for: SIGTERM, and `breakpoint`."""
    on_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    debugger = os.environ.get(_DEBUGGER)
    try:
        yield
    finally:
        if on_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)
        os.environ.pop(_DEBUGGER, None)
        if debugger is not None:
            os.environ[_DEBUGGER] = debugger


def _reason(error: BaseException) -> str:
    """Return why an actor has ended, out of what Ray tells: what it was, its numbers, perhaps a traceback; then why."""
    text = " ".join(str(error).split())
    first = _first_line(error)
    if _BECAUSE in text:
        return text[text.index(_BECAUSE) :][:_LONG]
    return text if len(text) <= len(first) + _LONG else f"{first} ... {text[-_LONG:]}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
