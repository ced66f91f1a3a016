"""An ordinary training script, with nine faults to choose from. It knows nothing of meshrt.

::

    torchrun --standalone --nproc-per-node 4 -m meshrt run examples/faults.py --fault late

docs/finding-faults.md tells how each one is found. Rank 2 has the fault, in step 20. Needs torch, on processors.
"""

import argparse
import ctypes
import itertools
import os
import queue
import signal
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULTS = ("none", "late", "mismatch", "nan", "exception", "kill", "segv", "memory", "slow", "lock")
ROWS = 64
COLUMNS = 256


class Loader:
    """Batches that a thread prepares; some of the shard of rank 2 are not as they should be."""

    def __init__(self, rank: int, fault: str) -> None:
        self.fault = fault if rank == 2 else "none"
        self.files = [f"shard-{rank}-{number}" for number in range(40)]
        self.cache: dict[str, torch.Tensor] = {}
        self.cache_lock = threading.Lock()
        self.stats_lock = threading.Lock()
        self.reads = 0
        self.batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
        threading.Thread(target=self.load, name="loader", daemon=True).start()

    def load(self) -> None:
        for step in itertools.count():
            self.batches.put(self.read(step))

    def read(self, step: int) -> torch.Tensor:
        name = self.files[step % len(self.files)]
        with self.cache_lock:
            if name not in self.cache:
                self.cache[name] = torch.randn(ROWS, COLUMNS)
            if self.fault == "lock" and step >= 20:
                time.sleep(0.1)
            with self.stats_lock:
                self.reads += 1
        raw = self.cache[name]
        if self.fault == "nan" and step % len(self.files) == 20:
            raw = torch.zeros(ROWS, COLUMNS)  # a file that is empty
        if self.fault == "late" and step == 20:
            time.sleep(1000)  # a file server that does not answer
        if self.fault == "slow" and step >= 20:
            raw = torch.tensor([[float(x) for x in row] for row in raw for _ in range(8)])[::8]  # in Python
        return (raw - raw.mean()) / raw.std()

    def next(self) -> torch.Tensor:
        batch = self.batches.get()
        if self.fault == "exception" and self.reads > 20:
            batch = batch[:, :-1]  # a file with a column less
        return batch

    def summary(self) -> str:
        with self.stats_lock:
            if self.fault == "lock":
                time.sleep(0.1)
            with self.cache_lock:
                return f"{self.reads} reads, {len(self.cache)} files in the cache"


def corrupt(fault: str) -> None:
    """Do what a bad library, or the kernel, does to a process."""
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "segv":
        ctypes.string_at(0)


def train(model: nn.Module, loader: Loader, steps: int) -> None:
    """Train; rank 0 prints the mean loss of all ranks every ten steps."""
    rank = dist.get_rank()
    fault = loader.fault
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    history = []
    for step in range(steps):
        batch = loader.next()
        output = model(batch)
        loss = (output - batch.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= 20:
            corrupt(fault)
        if fault == "memory":
            history.append(output.expand(-1, 40_000).clone())  # "to plot it later": 10 MB a step
        if step % 10 == 0:
            mean = loss.detach().clone()
            if fault == "mismatch" and step == 20:
                dist.broadcast(mean, src=0)
            else:
                dist.all_reduce(mean)
            if fault == "lock":
                loader.summary()
            if rank == 0:
                print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}", flush=True)
        time.sleep(0.05)  # the rest of the work


def main() -> None:
    """Set up the ranks, and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(COLUMNS, 1))
    loader = Loader(dist.get_rank(), options.fault)
    train(model, loader, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
