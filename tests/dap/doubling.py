"""Run by tests under a debugger: doubles the numbers that come on its standard input, and so do its children.

Its arguments are its name and the number of its children. ``spin`` instead of a number makes it busy, and not its
children, until a debugger sets `busy` to false.
"""

from __future__ import annotations

import subprocess
import sys

__all__ = ["double", "main", "spin"]


def double(number: int) -> int:
    """Twice the number."""
    answer = 2 * number
    return answer  # @doubled


def spin() -> None:
    """Be busy."""
    busy = True
    print("spinning", flush=True)
    while busy:
        pass  # @spinning


def main() -> None:
    """Do what is asked, until the input ends."""
    name, count = sys.argv[1], int(sys.argv[2])
    children = [
        subprocess.Popen([sys.executable, __file__, f"child{one}", "0"], stdin=subprocess.PIPE, text=True)
        for one in range(count)
    ]
    print(name, "up", flush=True)
    for line in sys.stdin:
        if line == "spin\n":
            spin()
            print(name, "span", flush=True)
            continue
        for child in children:
            assert child.stdin is not None
            child.stdin.write(line)
            child.stdin.flush()
        print(name, double(int(line)), flush=True)
    for child in children:
        child.communicate()


if __name__ == "__main__":
    main()
