"""Data parallel training: each rank has its part of the batches, and all end with the same parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        generator = torch.Generator().manual_seed(100 * rank + step)
        batch = torch.randn(4, 8, generator=generator)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step} loss {loss.item():.5f}")
    print(f"rank {rank} sum {sum(each.sum().item() for each in model.parameters()):.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
