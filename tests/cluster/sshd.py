"""ssh between machines: an sshd on each, and one key that all of them let in."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.cluster.daemons import Daemons
from tests.cluster.machines import Machine
from tests.support.waiting import wait_until

__all__ = ["CLIENT", "sshd", "why_no_ssh"]

_SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") or ""
#: What ``ssh`` needs on a machine to get into another one.
CLIENT = ("-F", "none", "-i", "/tmp/ssh/user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
          "-o", "LogLevel=ERROR")  # fmt: skip
#: Port 22 as /proc writes it, and the state of a socket that listens.
_LISTENS = (":0016", "0A")


def why_no_ssh() -> str:
    """Return why there can be no ssh here; "" if there can."""
    if _SSHD and shutil.which("ssh"):
        return ""
    return "ssh and sshd are not installed (Debian: apt-get install openssh-server openssh-client)"


@contextlib.contextmanager
def sshd(made: Sequence[Machine]) -> Iterator[None]:
    """Serve ssh on machines; on each, ``ssh`` with the words `CLIENT` gets into all."""
    done = made[0].run("sh", "-c", "ssh-keygen -q -t ed25519 -N '' -f /tmp/new && cat /tmp/new && rm /tmp/new*")
    assert done.returncode == 0, done.stderr
    options = ["HostKey=/tmp/ssh/host", "AuthorizedKeysFile=/tmp/ssh/keys", "StrictModes=no", "UsePAM=no"]
    words = [word for option in [*options, "PermitRootLogin=yes"] for word in ("-o", option)]
    with Daemons() as daemons:
        for machine in made:
            files = (
                "umask 077; mkdir -p /run/sshd /tmp/ssh; cd /tmp/ssh; rm -f *; ssh-keygen -q -t ed25519 -N '' -f host"
            )
            files += f"; printf %s '{done.stdout}' > user; ssh-keygen -y -f user > keys"
            laid = machine.run("sh", "-c", files)
            assert laid.returncode == 0, laid.stderr
            daemons.start(machine, _SSHD, "-D", "-e", "-f", "/dev/null", *words)
        for machine in made:
            wait_until(partial(_listens, machine), 20, f"sshd does not listen on {machine.name}")
        yield


def _listens(machine: Machine) -> bool:
    table = Path(f"/proc/{machine.pid}/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[1].endswith(_LISTENS[0]) and row.split()[3] == _LISTENS[1] for row in table)
