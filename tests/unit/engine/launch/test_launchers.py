"""Which launcher has started a process, by its variables."""

from __future__ import annotations

import pytest

from meshrt.engine.launch.launchers import Launched, detect, expand
from meshrt.errors import UsageError

SLURM = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NODELIST": "n[1-3]",
    # Of the job, in which the step is smaller.
    "SLURM_NTASKS": "8",
    "SLURM_NNODES": "8",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "PMIX_NAMESPACE": "3402366977",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
}
PYTORCHJOB = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
TRAINJOB = {"PET_NODE_RANK": "1", "PET_NNODES": "2", "PET_MASTER_ADDR": "job-node-0-0", "PET_MASTER_PORT": "29400"}
POD = {"JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-3", "MESHRT_HOSTS": "4"}
HAND = {"MESHRT_INDEX": "1", "MESHRT_HOSTS": "2", "MESHRT_JOB": "a/b c"}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (SLURM, Launched("SLURM", 2, 3, "slurm-12-0", ("n1", "n2", "n3"))),
        ({**SLURM, "SLURM_RESTART_COUNT": "1"}, Launched("SLURM", 2, 3, "slurm-12-0-1", ("n1", "n2", "n3"))),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_NUM_NODES": "1"}, Launched("SLURM", 0, 1)),
        (MPI, Launched("Open MPI", 1, 4, "mpi-3402366977")),
        ({**SLURM, **MPI}, Launched("Open MPI", 1, 4, "mpi-3402366977")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"}, Launched("MPI", 1, 2)),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "x", "MESHRT_HOSTS": "2"}, Launched("PMIx", 1, 2, "mpi-x")),
        (TORCHRUN, Launched("torchrun", 1, 2, "torchrun-none-n1-29500")),
        ({**SLURM, **TORCHRUN}, Launched("torchrun", 1, 2, "torchrun-none-n1-29500")),
        (PYTORCHJOB, Launched("RANK and WORLD_SIZE", 1, 2, "torch-job-master-0-23456")),
        (TRAINJOB, Launched("PET_NODE_RANK and PET_NNODES", 1, 2, "torch-job-node-0-0-29400")),
        (POD, Launched("a Kubernetes Indexed Job", 3, 4, "job-train")),
        ({**POD, "HOSTNAME": "other"}, Launched("a Kubernetes Indexed Job", 3, 4)),
        (HAND, Launched("the variables", 1, 2, "job-a_b_c")),
        ({**SLURM, **HAND}, Launched("the variables", 1, 2, "job-a_b_c")),
        ({**SLURM, "MESHRT_JOB": "mine"}, Launched("SLURM", 2, 3, "slurm-mine-0", ("n1", "n2", "n3"))),
    ],
)
def test_launchers(variables: dict[str, str], found: Launched) -> None:
    assert detect(variables) == found


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, "no launcher is known here: .* use 'meshrt launch --hosts 1' for this machine alone"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "6"}, r"SLURM has started 2 processes .* use srun --ntasks-per-node=1$"),
        ({"SLURM_JOB_ID": "12", "SLURM_NNODES": "2"}, "not a job step: use srun --ntasks-per-node=1 meshrt"),
        ({**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, r"use mpirun --map-by ppr:1:node$"),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, r"use mpiexec -ppn 1$"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}, r"started 8 processes .* use torchrun --nproc-per-node 1$"),
        ({**PYTORCHJOB, "LOCAL_WORLD_SIZE": "8"}, "use one process for each host"),
        ({"JOB_COMPLETION_INDEX": "3"}, "do not know how many there are: set MESHRT_HOSTS"),
        ({"MESHRT_INDEX": "1"}, "the number of hosts is not known: set MESHRT_HOSTS, or use --hosts"),
        ({"MESHRT_INDEX": "one", "MESHRT_HOSTS": "2"}, "MESHRT_INDEX is 'one'; expected a number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "index 2 of 2 hosts; expected 0 to 1"),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "1"}, "WORLD_SIZE is not set; expected a number"),
    ],
)
def test_what_is_refused_and_what_to_type(variables: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        detect(variables)


def test_options_come_before_variables() -> None:
    assert detect(HAND, hosts=5, index=4) == Launched("the variables", 4, 5, "job-a_b_c")
    assert detect({"JOB_COMPLETION_INDEX": "3"}, hosts=4).hosts == 4
    assert detect({}, hosts=1) == Launched("no launcher", 0, 1)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-10,12],login", ("n08", "n09", "n10", "n12", "login")),
        ("a1-ib,b[2,4]-ib", ("a1-ib", "b2-ib", "b4-ib")),
        ("", ()),
        ("n[x]", ()),
        ("r[1-2]n[1-2]", ()),
    ],
)
def test_names_of_nodes(nodes: str, names: tuple[str, ...]) -> None:
    assert expand(nodes) == names
