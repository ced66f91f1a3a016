"""What a process of a launcher becomes: the script's, or a host."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest

from meshrt.engine.launch import command
from meshrt.errors import UsageError

NONE: dict[str, Any] = {
    **dict.fromkeys(("min_hosts", "hosts", "index", "job", "root", "secret_file")),
    "timeout": 3.0,
    "words": ["a.py"],
}


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []

    def become(what: str, status: int, *given: Any) -> int:
        made.append((what, *given))
        return status

    monkeypatch.setattr(command, "_run_script", functools.partial(become, "script", 7))
    monkeypatch.setattr(command, "be_host", functools.partial(become, "host", 8))
    for name in ("MASTER_ADDR", "MESHRT_ROOT", "MESHRT_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MESHRT_RENDEZVOUS", "/shared")
    return made


def test_host_0_runs_the_script_and_the_others_are_hosts(became: list[tuple[Any, ...]]) -> None:
    assert command.show({**NONE, "hosts": 2, "index": 0, "job": "mine"}) == 7
    assert command.show({**NONE, "hosts": 2, "index": 1, "job": "mine"}) == 8
    (script, found, rendezvous, fewest, _), (host, _, other, seconds) = became
    assert (script, found.index, fewest, str(rendezvous.way)) == (
        "script", 0, 2, "the file /shared/job-mine, which all hosts have to share",
    )  # fmt: skip
    assert (host, other, seconds) == ("host", rendezvous, 3.0)


def test_a_host_alone_looks_for_none(became: list[tuple[Any, ...]]) -> None:
    assert command.show({**NONE, "hosts": 1}) == 7
    assert became[0][2] is None


def test_more_hosts_than_there_are_cannot_be_waited_for(became: list[tuple[Any, ...]]) -> None:
    assert command.show({**NONE, "hosts": 3, "index": 0, "job": "mine", "min_hosts": 2}) == 7
    assert became[0][3] == 2
    with pytest.raises(UsageError, match=r"--min-hosts 4, but the number of hosts is 3 \(the"):
        command.show({**NONE, "hosts": 3, "index": 0, "job": "mine", "min_hosts": 4})


#: What Open MPI 4.1 sets.
BOUND = {"OMPI_MCA_orte_bound_at_launch": "1", "OMPI_MCA_rmaps_base_mapping_policy": "ppr:1:node"}


@pytest.mark.parametrize(
    ("variables", "undone"),
    [
        (BOUND, True),
        ({}, False),
        ({**BOUND, "OMPI_MCA_hwloc_base_binding_policy": "socket"}, False),
        ({**BOUND, "OMPI_MCA_rmaps_base_mapping_policy": "ppr:1:node:PE=4"}, False),
    ],
)
def test_only_the_default_is_undone(variables: dict[str, str], undone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, processors: asked.append(set(processors)))
    assert command.unbind(variables) is undone
    assert asked == ([set(range(os.sysconf("SC_NPROCESSORS_CONF")))] if undone else [])
