"""``python -m tests.fuzz [TARGET ...] [--minutes 60] [--seed N]``: try inputs; exit status 1 if one is found.

Where atheris is installed (``pip install --group fuzz``) it leads the search; otherwise the lines that are reached do.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import subprocess
import sys
import time
import traceback

from tests.fuzz.running import Found, attempt, search
from tests.fuzz.targets import TARGETS

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)} (all)")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all of them together (60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all that is drawn at random")
    parser.add_argument("--input", help="try this one input, hexadecimal, instead")
    given = parser.parse_args()
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown or (given.input is not None and len(given.targets) != 1):
        parser.error(
            f"no target {unknown[0]!r}; expected {', '.join(TARGETS)}" if unknown else "--input needs a target"
        )
    targets = [TARGETS[name] for name in given.targets or TARGETS]
    seconds = given.minutes * 60 / len(targets)
    logging.getLogger("meshrt").addHandler(logging.NullHandler())  # refusals are what is expected
    guided = importlib.util.find_spec("atheris") is not None
    print(f"seed {given.seed}, {'atheris' if guided else 'lines reached'}", flush=True)
    failed = 0
    for target in targets:
        try:
            if given.input is not None:
                attempt(target, bytes.fromhex(given.input))
                tried = "1 input"
            elif guided:
                command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(int(seconds)), str(given.seed)]
                failed += subprocess.run(command).returncode != 0
                tried = "done"
            else:
                tried = f"{search(target, seconds, given.seed)} inputs"
            print(f"{target.name}: {tried}", flush=True)
        except Found:
            traceback.print_exc()
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
