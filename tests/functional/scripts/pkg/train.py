"""A training that is a module of a package: it imports the others relatively."""

import os
import pickle
import sys
from dataclasses import dataclass

from . import model
from .model import SIZE


@dataclass
class State:
    """What a checkpoint has."""

    size: int


def main() -> None:
    rank = os.environ["RANK"]
    loaded = pickle.loads(pickle.dumps(State(SIZE)))
    print(f"rank {rank} {loaded} {type(loaded).__module__} {model.__name__} {__package__} {__spec__.name}")
    print(f"rank {rank} {sys.argv[1:]} {os.path.relpath(sys.argv[0])} {__file__ == sys.argv[0]} {sys.path[0]}")


if __name__ == "__main__":
    main()
