"""``python -m tests.soak [--minutes 10] [--seed N]``: prints a table; exit status 1 if anything was found."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.soak import Options, Soak

#: Of the file system that is filled, in the mount namespace of a run. What ranks print is kept there.
DISK = "size=256m"
#: In the environment of a run that is in a mount namespace of its own.
INSIDE = "MESHRT_SOAK_DISK"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen (10)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all that is drawn at random")
    parser.add_argument("--busier", type=float, default=1.0, help="multiplies the rates of all faults (1)")
    options = parser.parse_args()
    disk = os.environ.pop(INSIDE, "")
    if not disk and os.geteuid() == 0 and shutil.which("unshare"):
        return _in_a_namespace()
    if not disk:
        print("without full disks: a file system of its own needs root and unshare", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="ms", dir="/tmp") as folder:  # paths of sockets have to be short
        run = Options(options.minutes * 60, options.seed, options.busier, Path(disk) if disk else None, Path(folder))
        print(f"seed {run.seed}", flush=True)
        return 0 if Soak(run).run() else 1


def _in_a_namespace() -> int:
    """Run this again where a small file system is mounted that nobody else sees."""
    with tempfile.TemporaryDirectory(prefix="md", dir="/tmp") as place:
        mounted = f'mount -t tmpfs -o {DISK} tmpfs "$0" && exec "$@"'
        again = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounted, place, *again]
        return subprocess.run(command, env={**os.environ, INSIDE: place}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
