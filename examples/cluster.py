"""A training run in miniature, on whatever hosts there are; see docs/clusters.md.

python cluster.py                                               # this machine
srun -N4 --ntasks-per-node=1 meshrt launch cluster.py           # SLURM; slurm/train.sbatch is a batch script
mpirun --map-by ppr:1:node meshrt launch cluster.py             # Open MPI
torchrun --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint n1:29500 -m meshrt launch cluster.py
kubectl apply -f kubernetes/indexed-job.yaml                    # its command: [meshrt, launch, cluster.py]

ssh -o BatchMode=yes n1 true                                    # ssh: no question is asked,
ssh n2 python -c "'import meshrt'"                              # meshrt is installed there,
python cluster.py 100 ssh n1 n2                                 # and the script names the machines

ray start --head                                                # Ray: on the first node,
ray start --address=n1:6379                                     # on each of the others,
python cluster.py 100 ray 4                                     # and the script on one of them: 4 nodes
"""

import socket
import sys

from meshrt import Actor, ProcMesh, current_rank, endpoint, proc_mesh, ssh

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


def started() -> ProcMesh:
    match sys.argv[2:]:
        case ["ssh", *names]:
            return proc_mesh(hosts=len(names), engine=ssh(*names))
        case ["ray", nodes]:
            return proc_mesh(hosts=int(nodes), engine="ray")
        case _:  # all hosts of the launcher, and a process for each GPU; without GPUs, one on each host
            return proc_mesh()


with started() as mesh:
    trainers = mesh.spawn("trainer", Trainer)
    print(f"{len(mesh)} ranks on", *dict.fromkeys(trainers.host.call().get().values()))
    weight = 0.0
    for _ in range(STEPS):
        gradients = trainers.gradient.call().get().values()
        weight = trainers.update.call(sum(gradients) / len(gradients)).get().values()[0]
    print(f"weight {weight:.3f} after {STEPS} steps")
