"""A rank that starts processes of its own, with torch.multiprocessing; in the end, one of them fails."""

import os

import torch
import torch.multiprocessing as mp


def work(index: int, results: "mp.SimpleQueue[tuple[int, float]]") -> None:
    results.put((index, torch.full((3,), float(index)).sum().item()))
    if index == 1:
        raise ValueError(f"no data for {index}")


def main() -> None:
    rank = os.environ["RANK"]
    results = mp.get_context("spawn").SimpleQueue()
    processes = mp.spawn(work, (results,), nprocs=2, join=False)
    print(f"rank {rank} {sorted(results.get() for _ in range(2))}")
    try:
        while not processes.join():
            pass
    except mp.ProcessRaisedException as error:
        print(f"rank {rank} {error.error_index} {str(error).splitlines()[-1]}")


if __name__ == "__main__":
    main()
