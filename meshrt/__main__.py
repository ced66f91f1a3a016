"""``python -m meshrt``: the ``meshrt`` command, where it is not on ``PATH``.

Helpers are started by the path of this file (`meshrt.transport.helper`). The package is not on ``sys.path`` then, or
another one of its name is: this one is loaded. Its directory, which may hold its dependencies, is searched last.

``python -m`` puts the working directory first in ``sys.path``. A script elsewhere runs in spite of a ``queue.py``
there, so this does, too: what it imports is not searched there, as with the command ``meshrt``.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

if __name__ == "__main__":
    _beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not __package__:
        _spec = PathFinder.find_spec("meshrt", [_beside])
        if _spec is None or _spec.loader is None:
            sys.exit(f"{_beside} has no package meshrt")
        sys.modules["meshrt"] = module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules["meshrt"])
    elif not sys.flags.safe_path:
        sys.path[:1] = [os.path.dirname(sys.executable)]
    if _beside not in sys.path:
        sys.path.append(_beside)
    del _beside  # not a variable of a script that the command runs

from meshrt.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
