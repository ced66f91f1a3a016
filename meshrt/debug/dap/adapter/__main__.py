"""What VS Code starts for a session: ``python .../meshrt/debug/dap/adapter`` is ``meshrt dap --stdio``.

An entry of launch.json names a file to run and no arguments. The directory has nothing else, as Python puts it first on
the path of modules.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

__all__: list[str] = []

if __name__ == "__main__":
    # What the extension adds is for debugpy's own adapter.
    sys.argv[1:] = ["dap", "--stdio"]
    runpy.run_path(str(Path(__file__).resolve().parents[3] / "__main__.py"), run_name="__main__")
