"""Tensor parallel layers: columns of the first one and rows of the second one are on different ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def main() -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    whole = model(torch.ones(2, 8)).sum().item()
    model = parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out = model(torch.ones(2, 8))
    out.sum().backward()
    weight = model[0].weight
    print(f"rank {dist.get_rank()} {mesh} {weight.placements} {tuple(weight.to_local().shape)}")
    print(
        f"rank {dist.get_rank()} sum {out.sum().item():.4f} of {whole:.4f}, gradient {weight.grad.to_local().sum():.4f}"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
