"""What a VS Code in a browser needs, where it is, and what of it is missing here."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

__all__ = ["HERE", "chromium", "code_server", "why_not"]

HERE = Path(__file__).resolve().parent


def code_server() -> list[str]:
    """The command that starts VS Code's server, in the words of a shell: it may need another node than that on PATH."""
    return shlex.split(os.environ.get("MESHRT_TEST_CODE_SERVER", "")) or ["code-server"]


def chromium() -> str:
    """The path of a browser; empty if none is on PATH."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), "")


def why_not() -> str:
    """Why a VS Code cannot be driven here, and how to get what is missing; empty if it can."""
    server = code_server()[0]
    missing = {
        f"{server} (see CONTRIBUTING.md; MESHRT_TEST_CODE_SERVER names its command)": shutil.which(server) is None,
        "chromium (apt install chromium)": not chromium(),
        "node": shutil.which("node") is None,
        "puppeteer-core (npm ci --prefix tests/dap/vscode)": not (HERE / "node_modules").is_dir(),
    }
    lacking = [what for what, lacks in missing.items() if lacks]
    return f"not installed: {', '.join(lacking)}" if lacking else ""
