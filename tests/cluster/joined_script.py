"""A script that knows nothing of meshrt: trains until it is told to stop by a file; one rank may fail then, or now.

joined_script.py [now] [RANK]
"""

import os
import sys
import time

rank = int(next(os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") if name in os.environ))
stop = os.environ.get("STOP", "/tmp/stop")
fails = str(rank) in sys.argv[1:]
batches = 0
while not os.path.exists(stop) and not (fails and "now" in sys.argv and batches == 20):
    batches += 1
    time.sleep(0.02)
if fails:
    raise ValueError("bad batch")
sys.stdout.write(f"trained {rank}\n")  # in one piece: ranks share the output, and print writes several with -u
