"""``python -m tests.pictures [NAME ...]``: write all pictures, or some. ``vscode`` is written only if it is named."""

from __future__ import annotations

import os
import sys
import tempfile

from tests.dap.vscode.installed import why_not as why_no_vscode
from tests.pictures import editor, vscode
from tests.pictures.badges import badges
from tests.pictures.sessions import SESSIONS
from tests.pictures.terminal import why_not
from tests.support.programs import ROOT, project


def main() -> None:
    names = sys.argv[1:] or ["types", "badges", *SESSIONS]
    if "types" in names:
        editor.PICTURE.write_text(editor.drawn((ROOT / "README.md").read_text("utf-8")), "utf-8")
    if "badges" in names:
        for name, badge in badges(project()).items():
            (ROOT / "docs" / name).write_text(badge, "utf-8")
    if set(names) - {"types", "badges", "vscode"} and (reason := why_not()):
        sys.exit(f"sessions cannot be recorded here: {reason}")
    with tempfile.TemporaryDirectory() as directory:
        os.environ["MESHRT_RUNTIME_DIR"] = directory  # beside whatever else runs here
        for name in names:
            if name in SESSIONS:
                (ROOT / "docs" / f"{name}.svg").write_text(SESSIONS[name](), "utf-8")
        if "vscode" in names:
            if reason := why_no_vscode():
                sys.exit(reason)
            vscode.shoot(vscode.PICTURE)


if __name__ == "__main__":
    main()
