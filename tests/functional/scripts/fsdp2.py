"""Training with sharded parameters (FSDP2), and a checkpoint of the whole model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(3):
        generator = torch.Generator().manual_seed(100 * rank + step)
        loss = model(torch.randn(4, 8, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step} loss {loss.item():.5f}")
    for name, parameter in model.named_parameters():
        print(f"rank {rank} {name} {tuple(parameter.shape)} here {tuple(parameter.to_local().shape)}")
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    print(f"rank {rank} checkpoint {[(name, round(value.sum().item(), 4)) for name, value in whole.items()]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
