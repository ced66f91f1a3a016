"""For tests of programs: actors without processes, classes in place of others, faults of ranks, a clock to set."""

from meshrt.testing.actors import local, local_mesh, patch_actor
from meshrt.testing.clock import FakeClock, fake_clock
from meshrt.testing.declared import call, cut, kill, stop
from meshrt.testing.plans import FaultPlan, faults

__all__ = [
    "FakeClock",
    "FaultPlan",
    "call",
    "cut",
    "fake_clock",
    "faults",
    "kill",
    "local",
    "local_mesh",
    "patch_actor",
    "stop",
]
