"""For tests of programs: actors without processes, classes in place of others, faults of ranks."""

from meshrt.testing.actors import local, local_mesh, patch_actor
from meshrt.testing.declared import call, cut, kill, stop
from meshrt.testing.plans import FaultPlan, faults

__all__ = ["FaultPlan", "call", "cut", "faults", "kill", "local", "local_mesh", "patch_actor", "stop"]
