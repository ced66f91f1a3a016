"""Which rank of a job this process is, as the variables of its launcher say. Pure.

A launcher that starts another one leaves its variables, so the inner one is looked for first: torchrun (and accelerate,
which is built on it), then MPI, whose daemons are tasks of SLURM in an allocation, then SLURM; at last the variables
that torch has, which deepspeed and many scripts set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshrt.engine.launch.launchers import JOB, number
from meshrt.errors import UsageError

__all__ = ["Place", "place_of"]


@dataclass(frozen=True)
class Place:
    """One rank among those that a launcher has started.

    Attributes:
        launcher: Its name, for messages.
        rank, size: This one, and how many there are.
        local_rank, local_size: The same among those of its host.
        job: Text that all ranks of this start of this job have in common, and those of no other.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    job: str

    @property
    def host(self) -> int:
        """The number of its host."""
        return self.rank // self.local_size

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.size // self.local_size

    @property
    def name(self) -> str:
        """A name of the job that a file may have."""
        return hashlib.sha256(f"{self.launcher}\0{self.job}\0{self.size}".encode()).hexdigest()[:16]


def place_of(variables: Mapping[str, str]) -> Place | None:
    """Return which rank this process is; None: no launcher has started it as one of several.

    Raises:
        UsageError: A variable is invalid, or hosts have different numbers of ranks, or these are not in order.
    """
    place = next((found for each in _LAUNCHERS if (found := each(variables)) is not None), None)
    if place is None or (place.size == 1 and place.launcher != "torchrun"):
        return None
    if not 0 <= place.local_rank < place.local_size <= place.size or place.size % place.local_size:
        raise UsageError(
            f"{place.launcher}: {place.size} ranks, and {place.local_size} of them on this host; "
            "expected the same number on each host"
        )
    if place.rank != place.host * place.local_size + place.local_rank:
        raise UsageError(
            f"{place.launcher}: rank {place.rank} is number {place.local_rank + 1} of {place.local_size} on its host; "
            "expected the ranks of a host one after the other (srun --distribution=block, mpirun --map-by slot)"
        )
    return place


# -- the launchers: each returns None if it has not started this process


def _torchrun(given: Mapping[str, str]) -> Place | None:
    if "TORCHELASTIC_RUN_ID" not in given or "RANK" not in given:
        return None
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return _place("torchrun", given, ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), names)


def _open_mpi(given: Mapping[str, str]) -> Place | None:
    if "OMPI_COMM_WORLD_RANK" not in given:
        return None
    numbers = [f"OMPI_COMM_WORLD_{each}" for each in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    return _place("Open MPI", given, numbers, ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"))


def _slurm(given: Mapping[str, str]) -> Place | None:
    if "SLURM_PROCID" not in given or "SLURM_STEP_ID" not in given:
        return None
    tasks = number(given, "SLURM_STEP_NUM_TASKS", number(given, "SLURM_NTASKS", 1))
    each = given.get("SLURM_STEP_TASKS_PER_NODE", given.get("SLURM_TASKS_PER_NODE", str(tasks)))
    counts = each.split(",")
    local = counts[0].partition("(")[0]
    if len(counts) > 1 or not local.isdigit():
        raise UsageError(f"SLURM: {each} tasks on the nodes; expected the same number on each")
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return Place(
        "SLURM", number(given, "SLURM_PROCID"), tasks, number(given, "SLURM_LOCALID"), int(local), _job(given, names)
    )


def _pmi(given: Mapping[str, str]) -> Place | None:
    if "PMI_RANK" not in given or "MPI_LOCALNRANKS" not in given:
        return None
    numbers = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    return _place("MPI", given, numbers, ("PMI_PORT", "PMI_ID_JOB", "HYDI_CONTROL_FD"))


def _variables(given: Mapping[str, str]) -> Place | None:
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= given.keys():
        return None
    local = next((name for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE") if name in given), None)
    if local is None:
        return None
    numbers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", local)
    return _place(f"RANK and {local}", given, numbers, ("MASTER_ADDR", "MASTER_PORT"))


_LAUNCHERS = (_torchrun, _open_mpi, _slurm, _pmi, _variables)


def _place(launcher: str, given: Mapping[str, str], numbers: Sequence[str], job: Sequence[str]) -> Place:
    rank, size, local_rank, local_size = (number(given, name) for name in numbers)
    return Place(launcher, rank, size, local_rank, local_size, _job(given, job))


def _job(given: Mapping[str, str], names: Sequence[str]) -> str:
    return "\0".join(given.get(name, "") for name in (JOB, *names))
