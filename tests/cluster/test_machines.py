"""Machines made of namespaces by an ordinary user; and what is said, and left, where they cannot be made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.others import needs_root, run_as_nobody

REPOSITORY = Path(__file__).resolve().parents[2]
#: What every script here begins with; its first argument is this checkout.
_BEGIN = """
import os, subprocess, sys
os.environ["PATH"] += ":/usr/sbin:/sbin"
sys.path.insert(0, sys.argv[1])
from tests.cluster.machines import machines, why_not, why_not_delayed
"""
_ASK = """
import socket, sys
print(socket.gethostname(), socket.create_connection((sys.argv[1], 9)).recv(100).decode())
"""
_ANSWER = """
import os, socket
with socket.create_server(("", 9)) as server:
    print("up", flush=True)
    peer, address = server.accept()
    peer.sendall(f"{os.getuid()} sees {address[0]}".encode())
"""


def test_an_ordinary_user_makes_two_machines_in_a_user_namespace_of_its_own() -> None:
    """The uid of its processes there is 0, and it filters what passes the cable."""
    if not os.access(REPOSITORY, os.R_OK | os.X_OK) or any(not each.stat().st_mode & 1 for each in REPOSITORY.parents):
        pytest.skip("another user cannot read this checkout")
    allowed = "import subprocess; print(subprocess.run(['unshare', '--user', '--map-root-user', '--net', 'true']))"
    if "returncode=0" not in run_as_nobody(allowed):
        pytest.skip("no user but root can make namespaces here")
    script = """
ask, answer, nft = sys.argv[2:]
if why_not():
    sys.exit(f"refused: {why_not()}")
with machines(2) as (first, second):
    server = first.start(sys.executable, "-c", answer, stdout=subprocess.PIPE)
    server.stdout.readline()
    print(second.run(sys.executable, "-c", ask, first.address).stdout.strip())
    server.communicate()
    if nft:
        first.filter("in iif lo accept", "in drop")
    first.limit("1gbit")
    first.cut()
    print(sorted(first.processes().values()))
    if not why_not_delayed():
        first.delay(0.01)
print(subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout)
"""
    out = run_as_nobody(_BEGIN + script, str(REPOSITORY), _ASK, _ANSWER, shutil.which("nft") or "")
    assert out.splitlines()[:2] == ["n2 0 sees 10.7.0.2", "[]"]
    assert out.splitlines()[2:] == ["ps -o args= --ppid " + out.rpartition(" ")[2].strip(), ""]


@pytest.mark.parametrize("capability", ["sys_admin", "net_admin"])
def test_where_it_is_not_allowed_the_reason_is_said_and_nothing_is_left(capability: str) -> None:
    """A root of a container that has no capability for namespaces, or for networks."""
    needs_root()
    script = """
print(why_not())
print(subprocess.run(["pgrep", "-l", "--parent", str(os.getpid())], capture_output=True, text=True).stdout.split())
"""
    words = ["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"]
    done = subprocess.run(
        [*words, sys.executable, "-c", _BEGIN + script, str(REPOSITORY)], capture_output=True, text=True, timeout=60
    )
    why, left = done.stdout.splitlines()
    assert why.startswith("namespaces are not allowed here: ") and "permitted" in why, done
    assert "unshare" not in left and "sleep" not in left, left
