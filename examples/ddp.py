"""An ordinary training script, with a bug: it hangs. It knows nothing of meshrt.

::

    torchrun --nproc-per-node 4 -m meshrt run examples/ddp.py        in one terminal
    meshrt where                                                     in another: who waits where
    meshrt p main SAMPLES                                            what they hold

Needs torch, on processors: ``pip install torch``.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAMPLES = 42


def train(model: nn.Module, shard: torch.Tensor) -> float:
    """Train on the samples of this rank; returns the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.zeros(())
    for sample in shard:
        optimizer.zero_grad()
        loss = (model(sample) - sample.sum()).square().mean()
        loss.backward()  # waits for the gradients of all ranks
        optimizer.step()
    return float(loss.item())


def main() -> None:
    """Train, and print the mean of all losses."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = torch.randn(SAMPLES, 8)
    shard = data[rank::size]  # the bug: some ranks have one sample more than others
    model = DistributedDataParallel(nn.Linear(8, 1))
    loss = torch.tensor(train(model, shard))
    dist.barrier()
    dist.all_reduce(loss)
    if rank == 0:
        print(f"loss {loss.item() / size:.3f}, {os.getpid()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
