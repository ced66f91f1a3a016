"""A training run in miniature, on whatever hosts there are; see "Started by a launcher" in docs/clusters.md.

python cluster.py                                               # this machine
srun -N4 --ntasks-per-node=1 meshrt launch cluster.py           # SLURM; slurm/train.sbatch is a batch script
mpirun --map-by ppr:1:node meshrt launch cluster.py             # Open MPI
torchrun --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint n1:29500 -m meshrt launch cluster.py
kubectl apply -f kubernetes/indexed-job.yaml                    # its command: [meshrt, launch, cluster.py]
"""

import socket
import sys

from meshrt import Actor, current_rank, endpoint, proc_mesh

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100


class Trainer(Actor):
    def __init__(self) -> None:
        self.target = 1.0 + current_rank().rank  # what the data of this rank says
        self.weight = 0.0

    @endpoint
    def host(self) -> str:
        return socket.gethostname()

    @endpoint
    def gradient(self) -> float:
        return self.weight - self.target

    @endpoint
    def update(self, gradient: float) -> float:
        self.weight -= 0.1 * gradient
        return self.weight


# All hosts that there are, and a process for each GPU; without GPUs, one on each host.
with proc_mesh() as mesh:
    trainers = mesh.spawn("trainer", Trainer)
    print(f"{len(mesh)} ranks on", *dict.fromkeys(trainers.host.call().get().values()))
    weight = 0.0
    for _ in range(STEPS):
        gradients = trainers.gradient.call().get().values()
        weight = trainers.update.call(sum(gradients) / len(gradients)).get().values()[0]
    print(f"weight {weight:.3f} after {STEPS} steps")
