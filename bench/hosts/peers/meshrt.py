"""meshrt; what it does is in :mod:`bench.hosts.program`, which the scenarios start."""

from bench.peers.meshrt import PEER

__all__ = ["PEER"]
