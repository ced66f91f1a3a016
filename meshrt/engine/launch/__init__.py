"""``meshrt launch``: a script on the hosts that a launcher has started: SLURM, MPI, torchrun, Kubernetes."""

__all__: list[str] = []
