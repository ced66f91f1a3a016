"""The window of VS Code at a program of examples/. `tests.dap.vscode.installed` says what it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from meshrt.debug.dap.router.launch_json import adapter_entry, write_launch_json
from tests.dap.vscode.workbench import BREAKPOINT, CALL_STACK, CONSOLE, VARIABLES, workbench
from tests.support.programs import ROOT, environment

__all__ = ["PICTURE", "shoot"]

PICTURE = ROOT / "docs" / "vscode.png"
#: Where a rank stops. The others have done the step before its breakpoint was there, or stop, too.
_LINE = "        self.loss = abs(self.weight)"


def shoot(path: Path) -> None:
    """Write the picture: a rank stops at a breakpoint, and the console shows which one has a wrong value."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "examples"
        folder.mkdir()
        source = Path(shutil.copy(ROOT / "examples" / "training.py", folder))
        write_launch_json(folder, adapter_entry())
        command = [sys.executable, str(source), "wrong"]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True) as program,
            workbench(folder) as window,
        ):
            try:
                assert program.stdout is not None and program.stdout.readline().startswith("step 0")
                window.open(str(source), source.read_text().splitlines().index(_LINE) + 1)
                window.press("F9")
                window.see(BREAKPOINT, "")
                window.press("Control", "Shift", "d")
                window.press("F5")
                window.see(CALL_STACK, "Paused on breakpoint")
                window.see(VARIABLES, "gradient, value")
                window.say("mesh p trainer self.config['lr']")
                window.see(CONSOLE, "[6] 10.0")
                window.shoot(path)
            finally:
                program.kill()
