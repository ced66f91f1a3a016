"""Tests that make sense on one machine only."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ONE_MACHINE"]

_AGENT = "only an agent on its own machine can be continued by the script"
_KILLED = "the directory of an agent that was killed is removed by the next program on its machine"
_LIMITS = "the limits of the script's machine are not those of its hosts"
_SHARES = "it looks into memory that script and ranks share; tests/cluster/test_arrays.py has arrays of two hosts"
_SAME = "its ranks are children of one agent"
_LOST = "test_a_lost_host_is_reported_though_the_record_of_what_a_rank_had_raised_is_lost_with_it"

#: A file below tests/, or ``file::function``, and why its tests are not run on two hosts.
ONE_MACHINE: Mapping[str, str] = {
    "faults/test_descendants.py::test_a_family_of_processes_ends": _SAME,
    "faults/test_descendants.py::test_an_orphan_that_nothing_tells_from_others_ends_with_the_last_rank": _SAME,
    "faults/test_links.py": "it damages the unix sockets of ranks; tests/cluster/test_reach.py has links of two hosts",
    "functional/test_ends.py::test_an_agent_that_cannot_be_continued_makes_the_status_1": _AGENT,
    "functional/test_ends.py::test_an_agent_that_is_stopped_at_the_end_hides_no_failure": _AGENT,
    "functional/test_ends.py::test_an_agent_whose_stop_cannot_be_seen_yet_is_continued_too": _AGENT,
    f"functional/test_ends.py::{_LOST}": _KILLED,
    "functional/test_fault_plans.py::test_a_rank_is_stopped_and_goes_on": (
        "a rank on another machine cannot be continued by the script, and is refused such a fault"
    ),
    "functional/test_limits.py::test_memory_that_would_not_suffice": _LIMITS,
    "functional/test_limits.py::test_open_files_that_would_not_suffice": _LIMITS,
    "functional/test_meshes.py::test_a_large_mesh_is_forked_with_what_each_rank_would_import": (
        "64 ranks on a host are many, and 32 on each of two are not"
    ),
    "functional/test_meshes.py::test_a_rank_is_told_in_the_same_class_why_its_mesh_cannot_be_started": _LIMITS,
    "functional/test_setup.py::test_much_environment_and_a_preloaded_module": "each host preloads by itself",
    "functional/test_store.py": _SHARES,
    "functional/test_store_machines.py": "it plays two machines on one; tests/cluster/test_arrays.py has two",
}
