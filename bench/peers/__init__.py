"""The contestants: one file each, behind the protocol of :mod:`bench.peers.protocol`.

Each is imported only in the process that measures it, so nobody pays for another's imports.
"""

from importlib.util import find_spec
from typing import NamedTuple

__all__ = ["CONTESTANTS", "ELSEWHERE", "SUBJECT", "Contestant", "importable"]

SUBJECT = "meshrt"
"""The contestant whose ratio to every other one is printed, and whom the bars bind."""


ELSEWHERE = {
    "debugger": "bench.debugger",
    "large": "bench.debugger",
    "memory": "bench.memory",
    "ports": "bench.ports",
    "hosts": "bench.hosts",
    "hosts_ray": "bench.hosts",
    "hosts_lost": "bench.hosts",
    "hosts_death": "bench.hosts",
    "hosts_large": "bench.hosts",
    "dap": "bench.dap",
    "dap_many": "bench.dap",
    "dap_cost": "bench.dap",
    "scripts": "bench.scripts",
    "scripts_where": "bench.scripts",
}
"""Scenarios that not every contestant can play, and the package that each of them stands in."""


def importable(package: str) -> bool:
    """Say whether a package is there. A mere folder of that name has no origin and does not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


class Contestant(NamedTuple):
    """A column of the table: what it needs, and what it plays of `ELSEWHERE`.

    ``path``: a folder with another commit of its package (`bench.against`), which is named by that commit.
    """

    name: str
    package: str
    distribution: str | None = None
    more: tuple[str, ...] = ()
    path: str = ""

    @property
    def module(self) -> str:
        """Return the module of `bench.peers` that measures it."""
        return self.name if not self.path else self.package

    def plays(self, scenario: str) -> bool:
        """Say whether it can be measured in a scenario."""
        return scenario not in ELSEWHERE or scenario in self.more

    def installed(self) -> bool:
        """Say whether the package can be imported, without importing it."""
        return importable(self.package)

    def version(self) -> str:
        """Return the installed version; ``checkout`` when the package is not installed but there."""
        if self.distribution is None:
            return "standard library"
        if self.path:
            return "another commit of meshrt"
        from importlib.metadata import PackageNotFoundError, version  # not in the memory of the actors: 2 MiB

        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return "checkout"


CONTESTANTS = (
    Contestant("meshrt", "meshrt", "meshrt", tuple(ELSEWHERE)),
    Contestant("mp", "multiprocessing"),
    Contestant("floor", "socket"),
    Contestant("monarch", "monarch", "torchmonarch", ("debugger", "hosts")),
    Contestant("ray", "ray", "ray", ("hosts",)),
    Contestant("xoscar", "xoscar", "xoscar"),
)
