"""A script of torch.distributed as people have it: data parallel training of a toy, without a line of meshrt.

::

    python toy.py FOLDER STEPS      each rank writes FOLDER/RANK: when it began, and how long its steps took
    python toy.py FOLDER 0          does not load torch; writes the file, and waits until it is ended
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

BEGUN = time.time()

__all__ = ["main"]

BATCH = 64
WIDTH = 256
WARM_UP = 20


def train(steps: int) -> list[float]:
    """Return the seconds of each step."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    batch = torch.ones(BATCH, WIDTH)
    taken = []
    for _ in range(WARM_UP + steps):
        begin = time.perf_counter()
        parallel(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.perf_counter() - begin)
    dist.destroy_process_group()
    return taken[WARM_UP:]


def main(folder: str, steps: int) -> None:
    """Be one rank."""
    taken = train(steps) if steps else []
    facts = {"begun": BEGUN, "step": statistics.median(taken) if taken else 0.0, "pid": os.getpid()}
    path = Path(folder, os.environ["RANK"])
    path.with_suffix(".part").write_text(json.dumps(facts))
    path.with_suffix(".part").rename(path)
    while not steps:
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
