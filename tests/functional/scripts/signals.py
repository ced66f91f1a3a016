"""A training that saves a checkpoint on SIGUSR1, and another one when it is ended by SIGTERM.

It trains until then, and says in a file that it does.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

RANK = os.environ["RANK"]
ENDING = False


def save(number: int, _frame: FrameType | None) -> None:
    print(f"rank {RANK} saves: {signal.Signals(number).name}", flush=True)


def end(number: int, frame: FrameType | None) -> None:
    global ENDING
    save(number, frame)
    ENDING = True


def main() -> None:
    signal.signal(signal.SIGUSR1, save)
    signal.signal(signal.SIGTERM, end)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 3600)
    Path(sys.argv[1], f"{RANK}.trains").write_text(str(os.getpid()))
    while not ENDING:
        time.sleep(0.02)
    time.sleep(0.3)  # what saving takes
    print(f"rank {RANK} has saved, {signal.getitimer(signal.ITIMER_REAL)[0] > 3000}", flush=True)
    sys.exit(int(sys.argv[2]))


if __name__ == "__main__":
    main()
