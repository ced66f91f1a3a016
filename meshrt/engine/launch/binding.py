"""Processors of a launched process: what a launcher binds to one core by default is to have all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

__all__ = ["unbind"]


def unbind(variables: Mapping[str, str]) -> bool:
    """Undo the default binding of Open MPI. Returns whether this process was bound by it.

    Open MPI binds each process to one core, or to one socket where there are more than two processes, unless the user
    asks for something else. Here one process is a whole host, and its ranks inherit the binding. What SLURM allocates
    is left as it is: the user has asked for it.
    """
    bound = variables.get("OMPI_MCA_orte_bound_at_launch") == "1"
    asked = "OMPI_MCA_hwloc_base_binding_policy" in variables
    asked = asked or ":pe=" in variables.get("OMPI_MCA_rmaps_base_mapping_policy", "").lower()
    if not bound or asked:
        return False
    # The kernel leaves out what the cgroup of the process has not.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
    return True
