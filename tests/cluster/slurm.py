"""A SLURM cluster of machines: munged and slurmd on each, slurmctld on the first one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from functools import partial

from tests.cluster.daemons import Daemons
from tests.cluster.machines import Machine
from tests.support.waiting import wait_until

__all__ = ["CONFIGURATION", "slurm", "why_no_slurm"]

#: Where the commands of a user find it: in SLURM_CONF.
CONFIGURATION = "/tmp/slurm/slurm.conf"

#: Each program, and the Debian package that has it.
_PACKAGES = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}
_PATH = os.pathsep.join(["/usr/sbin", "/sbin", os.environ.get("PATH", "")])

#: Two processors for each machine, whatever it has, so that two tasks fit on one; and two GPUs, which are null devices:
#: SLURM gives them to jobs as it does with real ones, by their numbers in CUDA_VISIBLE_DEVICES.
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={controller}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/tmp/slurm/state
SlurmdSpoolDir=/tmp/slurm/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=100000
ReturnToService=2
SlurmdTimeout=5
MessageTimeout=5
KillWait=5
WaitTime=5
{nodes}
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE State=UP
"""


def why_no_slurm() -> str:
    """Return why there can be no SLURM here; "" if there can."""
    missing = sorted({package for program, package in _PACKAGES.items() if not shutil.which(program, path=_PATH)})
    return f"SLURM is not installed (Debian: apt-get install {' '.join(missing)})" if missing else ""


@contextlib.contextmanager
def slurm(made: Sequence[Machine]) -> Iterator[None]:
    """Run SLURM on machines; the commands of a user find it by ``SLURM_CONF``."""
    controller = made[0]
    about = "CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN"
    nodes = "\n".join(f"NodeName={machine.name} NodeAddr={machine.address} {about}" for machine in made)
    text = _CONFIGURATION.format(controller=f"{controller.name}({controller.address})", nodes=nodes)
    key = secrets.token_hex(64)
    with Daemons() as daemons:
        for machine in made:
            lines = [
                "set -e; umask 077; mkdir -m 755 /run/munge; mkdir -p /tmp/slurm/state /tmp/slurm/spool; cd /tmp/slurm"
            ]
            lines += [f"printf %s '{text}' > slurm.conf", f"printf %s '{key}' > munge.key"]
            lines += [
                "ln -s /dev/null gpu0; ln -s /dev/null gpu1",
                "echo Name=gpu File=/tmp/slurm/gpu[0-1] > gres.conf",
            ]
            done = machine.run("sh", "-c", "\n".join(lines))
            assert done.returncode == 0, done.stderr
            places = [f"--{name}=/tmp/slurm/munge.{name}" for name in ("pid-file", "log-file", "seed-file")]
            # By force: it does not like directories that all may write to, as /tmp.
            munged = [*places, "--key-file=/tmp/slurm/munge.key", "--force", "--foreground"]
            daemons.start(machine, _program("munged"), *munged)
            wait_until(partial(_munge_answers, machine), 20, "munge does not answer")
        environment = {"SLURM_CONF": CONFIGURATION}
        daemons.start(controller, _program("slurmctld"), "-D", "-i", **environment)
        for machine in made:
            daemons.start(machine, _program("slurmd"), "-D", "-N", machine.name, **environment)
        wait_until(lambda: _idle(controller) == {machine.name for machine in made}, 60, "the nodes are not idle")
        yield


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None
    return found


def _munge_answers(machine: Machine) -> bool:
    return machine.run("munge", "-n").returncode == 0


def _idle(controller: Machine) -> set[str]:
    done = controller.run("env", f"SLURM_CONF={CONFIGURATION}", "sinfo", "-h", "-N", "-o", "%N %T")
    rows = [row.split() for row in done.stdout.splitlines()]
    return {row[0] for row in rows if row[1:] == ["idle"]}
