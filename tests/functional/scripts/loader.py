"""Batches that worker processes load: each rank has a part of the samples, and two workers."""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info


class Squares(Dataset[torch.Tensor]):
    """The square of each number, and the worker that has loaded it."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        assert info is not None and info.num_workers == 2 and os.getpid() != PARENT
        return torch.tensor([index * index, info.id])


PARENT = os.getpid()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Squares()
    for persistent in False, True:
        sampler: DistributedSampler[torch.Tensor] = DistributedSampler(data, shuffle=True, seed=1)
        loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=2, persistent_workers=persistent)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            print(f"rank {rank} epoch {epoch} {[batch.tolist() for batch in loader]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
