"""The options of a training."""

import argparse
import os


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", help="files")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (%(default)s)")
    parser.add_argument("-n", "--steps", type=int, choices=range(1, 100), metavar="N", default=1)
    parser.add_argument("-m", "--model", default="small")
    given = parser.parse_args()
    print(f"rank {os.environ['RANK']} {given}")


if __name__ == "__main__":
    main()
