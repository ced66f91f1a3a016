"""16 ranks on four hosts that start one by one, and print in their setup function. What it waits for is in a folder.

``host 1`` to ``host 3`` start when there is a file of that name, and no earlier than a second after the first one.
Ranks print when there is a file ``print``.
"""

import itertools
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    os.environ["SLOW_START"] = sys.argv[1]
FOLDER = Path(os.environ["SLOW_START"])


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.01)


def is_first(name: str) -> bool:
    """Whether no other process has taken this name."""
    try:
        os.mkdir(FOLDER / name)
    except FileExistsError:
        return False
    return True


def set_up() -> None:
    from meshrt import current_rank

    wait_for("print")
    rank = current_rank().rank
    print(f"rank {rank} begins", end="", flush=True)
    print(f" and is whole, {'x' * 40}", flush=True)
    print(f"rank {rank} has an error", file=sys.stderr)


if __name__ == "__main__":
    from meshrt import Actor, endpoint, proc_mesh
    from meshrt.engine.local import LocalEngine

    class Job(Actor):
        @endpoint
        def step(self) -> None:
            pass

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    mesh = proc_mesh(hosts=4, gpus=4, setup=set_up, preload=["slow_start"], engine=LocalEngine(agents=4))
    jobs = mesh.spawn("job", Job)
    time.sleep(1.1)  # a start that takes no second has no bar
    (FOLDER / "late").touch()
    jobs.step.call().get()
    mesh.stop()
    print("all have started")
else:
    NUMBER = next(number for number in itertools.count() if is_first(f"taken {number}"))
    if NUMBER:
        wait_for("late")
        wait_for(f"host {NUMBER}")
