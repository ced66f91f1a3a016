"""A VS Code on the screen: what a person does there, and what they see."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from meshrt.hooks.facts import Body
from tests.dap.vscode.family import Family
from tests.dap.vscode.installed import HERE, chromium
from tests.dap.vscode.server import CodeServer
from tests.support.waiting import wait_until

__all__ = ["BREAKPOINT", "CALL_STACK", "CONSOLE", "NOTICES", "UNVERIFIED", "VARIABLES", "Workbench", "workbench"]

# Where a person looks, as selectors of CSS.
CALL_STACK = ".debug-call-stack .monaco-list-row"
VARIABLES = ".debug-variables .monaco-list-row"
CONSOLE = ".repl .monaco-list-row"
NOTICES = ".notification-toast"
#: In the margin of the editor: a red dot, and a grey one.
BREAKPOINT = ".cgmr.codicon-debug-breakpoint"
UNVERIFIED = ".cgmr.codicon-debug-breakpoint-unverified"

#: In seconds, for whatever is waited for: a browser and a server that share two processors with other tests are slow.
_PATIENCE = 30.0
_INPUT = ".repl .repl-input-wrapper .monaco-editor"
_TOOLBAR = ".debug-toolbar .action-item:not(.disabled) .action-label"
_CONSOLE_OF = '[aria-label="Debug Session"] option:checked'


class Workbench:
    """One window. What does not come to be seen fails the test, and tells what was seen instead.

    Args:
        folder: Where the extension has its files.
        kept: Gets a picture of the window, and what has passed, when something is not seen.
    """

    def __init__(self, page: Family, folder: Path, kept: Path) -> None:
        self._page = page
        self._folder = folder
        self._kept = kept

    # ---- what a person does ------------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Press keys together: ``press("Shift", "F5")``."""
        self._do("press", keys=keys)

    def drive(self, button: str, *keys: str) -> None:
        """Press the keys of a button of the debug toolbar, once it is there: before that they would do nothing."""
        self.see(_TOOLBAR, button)
        self.press(*keys)

    def click(self, at: str, text: str) -> None:
        """Click on the first element that shows a text."""
        self._do("click", at=at, text=text)

    def command(self, name: str, *arguments: Any) -> None:
        """Run a command of VS Code, as from its palette."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_PATIENCE)
            sock.connect(str(self._folder / "commands"))
            sock.sendall(json.dumps({"command": name, "arguments": arguments}).encode() + b"\n")
            with sock.makefile() as answers:
                answer = json.loads(answers.readline())
        assert answer == {}, f"{name}: {answer}"

    def open(self, path: str, line: int) -> None:
        """Open a file in the editor, with the cursor in a line (from 1)."""
        place = {"line": line - 1, "character": 0}
        self.command("vscode.open", {"file": path}, {"selection": {"start": place, "end": place}})

    def choose(self, session: str) -> None:
        """Choose a debug session in Call Stack."""
        # Its name: under the middle of the row there are buttons, once the mouse is there.
        self.click(f"{CALL_STACK} .session .name", session)
        self.see(_CONSOLE_OF, session)

    def say(self, line: str) -> None:
        """Enter a line in the debug console."""
        self.command("workbench.panel.repl.view.focus")
        self.see(f"{_INPUT}.focused", "")
        self._do("type", text=line)
        self.see(f"{_INPUT} .view-lines", line)
        self.press("Enter")

    # ---- what they see -----------------------------------------------------------------------------------------------

    def see(self, at: str, *texts: str) -> list[str]:
        """Wait until each text is shown by an element of ``at``; returns what all of these show then."""
        return self._do("see", at=at, texts=texts)

    def miss(self, at: str, *texts: str) -> None:
        """Wait until none of the texts is shown by an element of ``at``."""
        self._do("miss", at=at, texts=texts)

    def shoot(self, path: Path) -> None:
        """Write a picture of the window."""
        self._do("shoot", path=str(path))

    def messages(self, session: str) -> list[Body]:
        """What has passed so far between VS Code and the adapter of a session."""
        path = self._folder / "messages"
        # A last line that is still being written has no end yet.
        lines = [line for line in path.read_text().splitlines(True) if line.endswith("\n")] if path.exists() else []
        return [one["message"] for one in map(json.loads, lines) if one["session"] == session]

    def wait_answer(self, session: str, command: str) -> None:
        """Wait until the adapter of a session has answered a request."""

        def answered() -> bool:
            kinds = [(message["type"], message.get("command")) for message in self.messages(session)]
            return ("response", command) in kinds

        wait_until(answered, _PATIENCE, f"an answer to {command} in {session}")

    # ------------------------------------------------------------------------------------------------------------------

    def begin(self, url: str) -> None:
        """Open the window; returns when a person could begin."""
        self._do("open", url=url)
        self.see(".monaco-workbench", "")
        wait_until((self._folder / "commands").exists, _PATIENCE, "the extension runs")

    def _do(self, deed: str, **more: Any) -> list[str]:
        answer = self._tell(deed, **more)
        if "error" in answer:
            self._tell("shoot", path=str(self._kept / "window.png"))
            if (messages := self._folder / "messages").exists():
                shutil.copy(messages, self._kept)
            shown = "\n  ".join(answer["shown"])
            raise AssertionError(
                f"{deed} {more}: {answer['error']}; in {self._kept} are window.png, and messages; shown is:\n  {shown}"
            )
        return list(answer["shown"])

    def _tell(self, deed: str, **more: Any) -> Body:
        self._page.tell(json.dumps({"do": deed, **more}))
        answer: Body = json.loads(self._page.said(seconds=2 * _PATIENCE)[0])
        return answer


@contextmanager
def workbench(folder: Path) -> Iterator[Workbench]:
    """A VS Code that has ``folder`` open, which also gets a picture if something is not seen."""
    with ExitStack() as stack:
        # Not below `folder`, whose path may be too long for the sockets in there.
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mv", ignore_cleanup_errors=True)))
        server = stack.enter_context(CodeServer(own))
        wanted = {
            "chromium": chromium(),
            # Its sandbox is not for root.
            "options": ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])],
            "profile": str(own / "profile"),
            "seconds": _PATIENCE,
        }
        command = ["node", str(HERE / "driver.js"), json.dumps(wanted)]
        page = stack.enter_context(Family(command, {**os.environ, "TMPDIR": str(own / "tmp")}))
        window = Workbench(page, own, folder)
        window.begin(f"{server.url()}/?folder={folder}")
        yield window
