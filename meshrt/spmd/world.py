"""The ranks of a script on one machine: their dimensions, and the variables by which the script knows its rank.

The variables are those of torchrun (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables), so
that `torch.distributed.init_process_group()` works without arguments.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from meshrt.errors import UsageError
from meshrt.transport.helper import interpreter

__all__ = ["World", "counted", "dimensions"]

#: Not in this process, which need not have torch.
_COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


def counted(ranks: int | str | None) -> int | None:
    """Return how many ranks ``"cpu"``, ``"gpu"`` or ``"auto"`` means, as torchrun counts them; a number is itself.

    Raises:
        UsageError: There is no GPU.
    """
    gpus = 0
    if ranks in ("gpu", "auto"):
        done = subprocess.run([*interpreter(), "-P", "-c", _COUNT_GPUS], capture_output=True, text=True, check=False)
        gpus = 0 if done.returncode else int(done.stdout)
    if ranks == "gpu" and not gpus:
        raise UsageError("--nproc-per-node gpu: torch finds no GPU")
    return (gpus or os.cpu_count() or 1) if isinstance(ranks, str) else ranks


def dimensions(ranks: int | None, text: str) -> dict[str, int]:
    """Return the dimensions of a mesh and their sizes, in order.

    Args:
        ranks: How many ranks; None: as many as ``text`` says.
        text: ``"dp=2,tp=4"``; ``""``: one host, and the ranks are its ``gpus``.
    Raises:
        UsageError: ``text`` is not valid, or the numbers differ.
    """
    if not text:
        return {"hosts": 1, "gpus": ranks or 1}
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (each.strip() for each in part.partition("="))
        if not (equals and name.isidentifier() and size.isascii() and size.isdigit() and int(size)):
            raise UsageError(f"--mesh: {part.strip()!r} is not a dimension; expected NAME=SIZE, such as dp=2,tp=4")
        if name in sizes:
            raise UsageError(f"--mesh: {name} is given twice")
        sizes[name] = int(size)
    count = math.prod(sizes.values())
    if ranks is not None and ranks != count:
        raise UsageError(f"--mesh {text} has {count} ranks, but -n is {ranks}; use only one of them")
    return sizes


@dataclass(frozen=True)
class World:
    """All ranks of one attempt.

    Attributes:
        size: How many there are.
        port: Of ``MASTER_PORT``: rank 0 may listen there.
        run_id: The name of the job.
        attempt: How often all ranks were started before.
        max_restarts: How often they may be started again.
    """

    size: int
    port: int
    run_id: str
    attempt: int = 0
    max_restarts: int = 0

    def variables(self, rank: int, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a rank.

        Args:
            given: The environment of the command. As with torchrun, ranks that share a machine have one OpenMP thread
                each, unless it says otherwise.
        """
        number, size = str(rank), str(self.size)
        found = {
            "RANK": number,
            "LOCAL_RANK": number,
            "ROLE_RANK": number,
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "ROLE_WORLD_SIZE": size,
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(self.max_restarts),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": given.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }
        if self.size > 1 and "OMP_NUM_THREADS" not in given:
            found["OMP_NUM_THREADS"] = "1"
        return found
