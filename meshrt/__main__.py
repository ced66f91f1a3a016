"""``python -m meshrt``: the ``meshrt`` command, where it is not on ``PATH``."""

from __future__ import annotations

import sys

from meshrt.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
