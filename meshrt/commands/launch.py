"""``launch``: a script on the hosts of a launcher."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Argument, Command, Group, Kind, Offer, Option
from meshrt.commandline.numbers import number, seconds

__all__ = ["COMMAND"]


_HOSTS = number("hosts", 1)

COMMAND: AnyCommand = Command(
    "launch",
    "run a script on the hosts that a launcher has started: srun, mpirun, torchrun, Kubernetes",
    group=Group.PROGRAMS,
    arguments=(Argument("words", Kind.WORDS, required=True, metavar="SCRIPT|-m MODULE [ARGUMENT ...]"),),
    options=(
        Option("--min-hosts", "start when N hosts have joined; others may join later (all)", "", "N", convert=_HOSTS),
        Option("--timeout", "seconds to wait for hosts (300)", "", "SECONDS", default=300.0, convert=seconds),
        Option("--hosts", "number of hosts (from the launcher, or MESHRT_HOSTS)", "", "N", convert=_HOSTS),
        Option(
            "--index",
            "number of this host, from 0 on (from the launcher, or MESHRT_INDEX)",
            "",
            "I",
            convert=number("a host"),
        ),
        Option(
            "--job",
            "a name that all hosts of this job have, and no other job (from the launcher, or MESHRT_JOB)",
            "",
            "NAME",
        ),
        Option("--root", "address at which host 0 listens, the same on all hosts (MESHRT_ROOT)", "", "HOST:PORT"),
        Option("--secret-file", "a file with a secret, the same on all hosts (MESHRT_SECRET_FILE)", "", "FILE"),
    ),
    details=(
        "Start this command once on each host:\n"
        "  srun -N4 --ntasks-per-node=1 meshrt launch train.py\n"
        "  mpirun --map-by ppr:1:node meshrt launch train.py\n"
        "  torchrun --nnodes 4 --nproc-per-node 1 -m meshrt launch train.py\n"
        "Host 0 runs the script, as python does. The other hosts run ranks of the script and end with the script.\n"
        "In the script, proc_mesh(hosts=..., gpus=...) uses these hosts: by default all hosts, and all GPUs of each.\n"
        "Without a launcher, set MESHRT_INDEX and MESHRT_HOSTS for each process. See docs/clusters.md."
    ),
    main="meshrt.engine.launch.command:show",
    offer=Offer.SHELL,
)
