"""Whether a machine can hold the ranks of a mesh, and which GPUs they get."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace

import psutil
import pytest

from meshrt.errors import SpawnError
from meshrt.host import limits as limits_module
from meshrt.host.limits import GPUS, check_limits, own_gpus


def limits(monkeypatch: pytest.MonkeyPatch, files: int, processes: int, free: int, threads: int = 100) -> None:
    """A machine with these limits, for a user that is not root."""
    both = {resource.RLIMIT_NOFILE: (files, files), resource.RLIMIT_NPROC: (processes, processes)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: both[which])
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    process = SimpleNamespace(info={"uids": SimpleNamespace(real=1234), "num_threads": threads})
    other = SimpleNamespace(info={"uids": SimpleNamespace(real=1), "num_threads": 10**6})
    monkeypatch.setattr(psutil, "process_iter", lambda attributes: [process, other])
    monkeypatch.setattr(limits_module, "free_in_group", list)


UNLIMITED = resource.RLIM_INFINITY
GIB = 1 << 30


def test_a_machine_that_can_hold_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 100_000, 100_000, 64 * GIB)
    check_limits(1000, 0)
    limits(monkeypatch, UNLIMITED, UNLIMITED, 64 * GIB)
    check_limits(5000, 0)


def test_too_few_files_processes_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 1024, 100_000, 64 * GIB)
    with pytest.raises(SpawnError, match=r"1000 ranks need about \d+ open files .* the limit is 1024") as caught:
        check_limits(1000, 10)
    most = int(str(caught.value).rpartition(" ")[2])
    check_limits(most, 10)
    with pytest.raises(SpawnError):
        check_limits(most + 1, 10)

    limits(monkeypatch, UNLIMITED, 1000, 64 * GIB, threads=500)
    with pytest.raises(SpawnError, match=r"200 ranks need about 600 threads, 500 of 1000 are in use: .*ulimit -u"):
        check_limits(200, 0)
    check_limits(150, 0)

    limits(monkeypatch, UNLIMITED, UNLIMITED, GIB)
    with pytest.raises(SpawnError, match=r"1000 idle ranks need about \d+ MiB, 1024 MiB are free") as caught:
        check_limits(1000, 0)
    check_limits(int(str(caught.value).rpartition(" ")[2]), 0)


def test_the_limit_of_the_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, UNLIMITED, UNLIMITED, 64 * GIB)
    monkeypatch.setattr(limits_module, "free_in_group", lambda: [GIB])
    with pytest.raises(SpawnError, match="1024 MiB are free"):
        check_limits(1000, 0)


def test_a_gpu_is_a_place_among_those_that_the_host_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GPUS, raising=False)
    assert own_gpus({GPUS: "3"}) == {GPUS: "3"}
    monkeypatch.setenv(GPUS, "GPU-8f, 5,MIG-2")
    assert own_gpus({"A": "1"}) == {"A": "1"}
    assert own_gpus({GPUS: "0"})[GPUS] == "GPU-8f"
    assert own_gpus({GPUS: "2, 1"})[GPUS] == "MIG-2,5"
    assert own_gpus({GPUS: "MIG-2"})[GPUS] == "MIG-2" and own_gpus({GPUS: "-1"})[GPUS] == "-1"
    assert own_gpus({GPUS: "5"})[GPUS] == "5", "no such place, and one of them"
    with pytest.raises(
        SpawnError, match="GPU 3 was requested, but the host has 3: CUDA_VISIBLE_DEVICES=GPU-8f,5,MIG-2"
    ):
        own_gpus({GPUS: "3"})
