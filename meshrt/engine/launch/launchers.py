"""Which launcher has started this process, as its variables say. Pure.

A launcher that starts another one leaves its variables: the inner one is looked for first. So torchrun is
before MPI, and MPI, whose daemons are tasks of SLURM in an allocation, before SLURM. What the user says comes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from meshrt.errors import UsageError

__all__ = ["HOSTS", "INDEX", "JOB", "Launched", "detect", "expand", "number"]

#: Environment: the number of this host from 0 on, how many there are, and a name that all processes of a job share.
INDEX, HOSTS, JOB = "MESHRT_INDEX", "MESHRT_HOSTS", "MESHRT_JOB"

_NODES = re.compile(r"([^,\[]*)(?:\[([^\]]*)\]([^,\[]*))?(?:,|$)")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Launched:
    """What a launcher says of this process.

    Attributes:
        launcher: Its name, for messages.
        index: Number of this host; the script runs on host 0.
        hosts: How many hosts there are.
        job: A name that the processes of this job have in common, and no other job that runs; "": it is not known.
        names: Of the hosts, in order, as far as they are known.
    """

    launcher: str
    index: int
    hosts: int
    job: str = ""
    names: tuple[str, ...] = ()


def detect(variables: Mapping[str, str], hosts: int | None = None, index: int | None = None) -> Launched:
    """Return which launcher has started this process.

    Args:
        variables: The environment.
        hosts, index: What the user says, in place of the variables.
    Raises:
        UsageError: It is not known, a variable is invalid, or there are several processes for each host.
    """
    given = dict(variables)
    if hosts is not None:
        given[HOSTS] = str(hosts)
    if index is not None:
        given[INDEX] = str(index)
    found = next((found for each in _LAUNCHERS if (found := each(given)) is not None), None)
    if found is None and given.get(HOSTS) == "1":
        found = Launched("no launcher", 0, 1)
    if found is None:
        raise UsageError(
            "no launcher is known here: there are no variables of SLURM (srun), Open MPI or MPICH (mpirun), torchrun, "
            f"a Kubernetes Indexed Job, and no RANK with WORLD_SIZE; set {INDEX} and {HOSTS} for each process, or use "
            "'meshrt launch --hosts 1' for this machine alone"
        )
    if not 0 <= found.index < found.hosts:
        raise UsageError(
            f"{found.launcher}: index {found.index} of {found.hosts} hosts; expected 0 to {found.hosts - 1}"
        )
    return found


def expand(nodes: str) -> tuple[str, ...]:
    """Return the names of a list of SLURM, ``"n[1-3,07],login"``; () for one that is written in another way."""
    names: list[str] = []
    for before, ranges, after in _NODES.findall(nodes):
        if not ranges:
            names += [before] if before else []
            continue
        for part in ranges.split(","):
            first, dash, last = part.partition("-")
            if not (first.isdigit() and (not dash or last.isdigit())):
                return ()
            numbers = range(int(first), int(last if dash else first) + 1)
            names += [f"{before}{number:0{len(first)}}{after}" for number in numbers]
    return () if any("[" in name or "]" in name for name in names) else tuple(names)


# -- the launchers: each returns None if it has not started this process


def _by_hand(given: Mapping[str, str]) -> Launched | None:
    if INDEX not in given:
        return None
    if HOSTS not in given:
        raise UsageError(f"{INDEX} is set, but the number of hosts is not known: set {HOSTS}, or use --hosts")
    return Launched("the variables", number(given, INDEX), number(given, HOSTS), _job("job", given.get(JOB)))


def _torchrun(given: Mapping[str, str]) -> Launched | None:
    if "TORCHELASTIC_RUN_ID" not in given or "RANK" not in given:
        return None
    _one_per_host("torchrun", number(given, "LOCAL_WORLD_SIZE", 1), "torchrun --nproc-per-node 1")
    job = _job(
        "torchrun", given.get(JOB) or given["TORCHELASTIC_RUN_ID"], given.get("MASTER_ADDR"), given.get("MASTER_PORT")
    )
    return Launched("torchrun", number(given, "RANK"), number(given, "WORLD_SIZE"), job)


def _open_mpi(given: Mapping[str, str]) -> Launched | None:
    if "OMPI_COMM_WORLD_RANK" not in given:
        return None
    _one_per_host("Open MPI", number(given, "OMPI_COMM_WORLD_LOCAL_SIZE", 1), "mpirun --map-by ppr:1:node")
    job = given.get(JOB) or given.get("PMIX_NAMESPACE") or given.get("OMPI_MCA_ess_base_jobid")
    return Launched(
        "Open MPI", number(given, "OMPI_COMM_WORLD_RANK"), number(given, "OMPI_COMM_WORLD_SIZE"), _job("mpi", job)
    )


def _slurm(given: Mapping[str, str]) -> Launched | None:
    if "SLURM_JOB_ID" not in given:
        return None
    # In a step, the names of its own; those of the job are there, too.
    nodes = number(
        given, "SLURM_STEP_NUM_NODES", number(given, "SLURM_NNODES", number(given, "SLURM_JOB_NUM_NODES", 1))
    )
    if "SLURM_STEP_ID" not in given or "SLURM_PROCID" not in given:
        if nodes > 1:
            raise UsageError(
                f"this is a job of SLURM on {nodes} nodes, but not a job step: "
                "use srun --ntasks-per-node=1 meshrt launch"
            )
        return Launched("SLURM", 0, 1)
    tasks = number(given, "SLURM_STEP_NUM_TASKS", number(given, "SLURM_NTASKS", 1))
    if tasks > nodes:
        _one_per_host("SLURM", -(-tasks // nodes), "srun --ntasks-per-node=1")
    restarts = given.get("SLURM_RESTART_COUNT")
    job = _job("slurm", given.get(JOB) or given["SLURM_JOB_ID"], given["SLURM_STEP_ID"], restarts)
    names = expand(given.get("SLURM_STEP_NODELIST", given.get("SLURM_JOB_NODELIST", "")))
    return Launched("SLURM", number(given, "SLURM_PROCID"), tasks, job, names if len(names) == tasks else ())


def _pmi(given: Mapping[str, str]) -> Launched | None:
    """MPICH and its relatives; PMIX_RANK alone does not say how many there are."""
    if "PMI_RANK" not in given or "PMI_SIZE" not in given:
        if "PMIX_RANK" in given and HOSTS in given:
            job = _job("mpi", given.get(JOB) or given.get("PMIX_NAMESPACE"))
            return Launched("PMIx", number(given, "PMIX_RANK"), number(given, HOSTS), job)
        return None
    _one_per_host("MPI", number(given, "MPI_LOCALNRANKS", 1), "mpiexec -ppn 1")
    return Launched("MPI", number(given, "PMI_RANK"), number(given, "PMI_SIZE"), _job("mpi", given.get(JOB)))


def _variables(given: Mapping[str, str]) -> Launched | None:
    """As torch names them, without torchrun: a PyTorchJob of Kubernetes, or a script of the user."""
    for rank, size, address, port in (
        ("PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
        ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    ):
        if rank in given and size in given:
            if rank == "RANK":
                _one_per_host(f"{rank} and {size}", number(given, "LOCAL_WORLD_SIZE", 1), "one process for each host")
            job = _job("torch", given.get(JOB) or given.get(address), given.get(port))
            return Launched(f"{rank} and {size}", number(given, rank), number(given, size), job)
    return None


def _kubernetes(given: Mapping[str, str]) -> Launched | None:
    if "JOB_COMPLETION_INDEX" not in given:
        return None
    if HOSTS not in given:
        raise UsageError(
            f"the pods of an Indexed Job do not know how many there are: set {HOSTS} in the manifest to its "
            "completions, or use meshrt launch --hosts N"
        )
    index = number(given, "JOB_COMPLETION_INDEX")
    pod = given.get("HOSTNAME", "")
    job = pod.removesuffix(f"-{index}") if pod.endswith(f"-{index}") else ""
    return Launched("a Kubernetes Indexed Job", index, number(given, HOSTS), _job("job", given.get(JOB) or job))


_LAUNCHERS = (_by_hand, _torchrun, _open_mpi, _slurm, _pmi, _variables, _kubernetes)


def number(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return the number in a variable; ``default`` where it is not set. Raises UsageError: it is none."""
    text = given.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdigit():
        raise UsageError(f"{name} is {'not set' if text is None else repr(text)}; expected a number")
    return int(text)


def _one_per_host(launcher: str, count: int, instead: str) -> None:
    if count > 1:
        raise UsageError(
            f"{launcher} has started {count} processes on a host; meshrt launch must be started once on each host, and "
            f"starts the processes itself: use {instead}"
        )


def _job(launcher: str, *parts: str | None) -> str:
    """Return the name of a job, as a file can have it; "" if its first part is missing."""
    if not parts[0]:
        return ""
    return _UNSAFE.sub("_", "-".join([launcher, *(part for part in parts if part)]))[:120]
