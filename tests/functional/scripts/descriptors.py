"""A script that closes all descriptors above 2, as daemons do, and has the numbers for its own files."""

import os
import sys
import time
from pathlib import Path

RANK = os.environ["RANK"]


def main() -> None:
    os.closerange(3, 4096)
    paths = [Path(sys.argv[1], f"{RANK}.{number}") for number in range(40)]
    files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in paths]
    print(f"rank {RANK} has {files[0]} to {files[-1]}")
    for file in files:
        os.write(file, b"first ")
    time.sleep(2)  # nobody else writes to them, or closes them
    for file in files:
        os.write(file, b"second")
        os.close(file)
    print(f"rank {RANK} {sorted({path.read_bytes() for path in paths})}")


if __name__ == "__main__":
    main()
