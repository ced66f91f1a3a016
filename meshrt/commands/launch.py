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
        Option(
            "--min-hosts", "start when so many hosts have joined; others may join later (all)", "", "N", convert=_HOSTS
        ),
        Option("--timeout", "wait so many seconds for hosts (300)", "", "S", default=300.0, convert=seconds),
        Option("--hosts", "how many hosts there are (as the launcher says, or MESHRT_HOSTS)", "", "N", convert=_HOSTS),
        Option(
            "--index",
            "the number of this host, from 0 on (as the launcher says, or MESHRT_INDEX)",
            "",
            "I",
            convert=number("a host"),
        ),
        Option(
            "--job", "a name that all hosts give, and no other job (as the launcher says, or MESHRT_JOB)", "", "NAME"
        ),
        Option("--root", "where host 0 listens, for all hosts (MESHRT_ROOT)", "", "HOST:PORT"),
        Option("--secret-file", "a file with a secret that all hosts have (MESHRT_SECRET_FILE)", "", "FILE"),
    ),
    details=(
        "Once on each host:\n"
        "  srun -N4 --ntasks-per-node=1 meshrt launch train.py\n"
        "  mpirun --map-by ppr:1:node meshrt launch train.py\n"
        "  torchrun --nnodes 4 --nproc-per-node 1 -m meshrt launch train.py\n"
        "Host 0 runs the script, as python does. The others are its hosts, and end when it ends. In the script,\n"
        "proc_mesh(hosts=..., gpus=...) uses them: all of them, and the GPUs of each, unless it says otherwise.\n"
        "Without a launcher: MESHRT_INDEX and MESHRT_HOSTS for each process. See docs/clusters.md."
    ),
    main="meshrt.engine.launch.command:show",
    offer=Offer.SHELL,
)
