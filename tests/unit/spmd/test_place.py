"""Which rank a process is, by the variables of each launcher."""

from __future__ import annotations

import pytest

from meshrt.errors import UsageError
from meshrt.spmd.place import place_of

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "n1", "MASTER_PORT": "29500", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "prterun-n1-17@1",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
}  # fmt: skip
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "PMI_PORT": "n1:40000"}
DEEPSPEED = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"
}  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        (TORCHRUN, "torchrun"),
        (OPEN_MPI, "Open MPI"),
        (SLURM, "SLURM"),
        (MPICH, "MPI"),
        (DEEPSPEED, "RANK and LOCAL_SIZE"),
        # The inner launcher: mpirun in an allocation of SLURM, torchrun in a task of it.
        ({**SLURM, "SLURM_PROCID": "0", **OPEN_MPI}, "Open MPI"),
        ({**SLURM, "SLURM_PROCID": "0", **TORCHRUN}, "torchrun"),
    ],
)
def test_launchers(variables: dict[str, str], launcher: str) -> None:
    place = place_of(variables)
    assert place is not None
    assert (place.launcher, place.rank, place.size, place.host, place.hosts) == (launcher, 5, 8, 1, 2)
    assert (place.local_rank, place.local_size) == (1, 4)


@pytest.mark.parametrize("variables", [TORCHRUN, OPEN_MPI, SLURM, MPICH, DEEPSPEED])
def test_ranks_of_one_job_have_one_name(variables: dict[str, str]) -> None:
    rank = next(name for name in variables if name in ("RANK", "PMI_RANK", "SLURM_PROCID") or name.endswith("D_RANK"))
    local = next(name for name in variables if "LOCAL" in name and "SIZE" not in name and "NRANKS" not in name)
    first, second = place_of(variables), place_of({**variables, rank: "4", local: "0"})
    assert first is not None and second is not None and first.name == second.name
    other = place_of({**variables, "MESHRT_JOB": "other"})
    assert other is not None and other.name != first.name


def test_a_job_that_torchrun_starts_again_has_another_name() -> None:
    first, second = place_of(TORCHRUN), place_of({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"})
    assert first is not None and second is not None and first.name != second.name


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "4"},  # nothing says which of them are on this host
        {**DEEPSPEED, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8"},  # a script of sbatch, and not a step
        {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_one_process(variables: dict[str, str]) -> None:
    assert place_of(variables) is None


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({**TORCHRUN, "RANK": "x"}, "RANK is 'x'; expected a number"),
        ({**TORCHRUN, "WORLD_SIZE": "7"}, "expected the same number on each host"),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4,3"}, "4,3 tasks on the nodes"),
        ({**SLURM, "SLURM_PROCID": "3"}, "expected the ranks of a host one after the other"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "4"}, "expected the same number on each host"),
    ],
)
def test_what_is_refused(variables: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        place_of(variables)
