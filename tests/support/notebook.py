"""Run by test_notebook: cells in a real kernel, and the debugger on it from another process. Prints one JSON object."""

import json
import os
import re
import subprocess
import sys
from typing import Any

from jupyter_client.manager import start_new_kernel  # type: ignore[import-not-found, unused-ignore]

DEFINE = """
from meshrt import Actor, current_rank, endpoint, proc_mesh

class Cell(Actor):
    @endpoint
    def stop_here(self) -> int:
        doubled = 2 * current_rank().rank
        breakpoint()
        return doubled

    @endpoint
    def fail(self) -> None:
        raise ValueError("no")

mesh = proc_mesh(gpus=2)
cells = mesh.spawn("cell", Cell).get()
"""


class CellError(Exception):
    """A cell has raised; what the notebook shows of that."""


def run_cell(client: Any, code: str) -> str:
    """Run a cell and return what it shows."""
    request = client.execute(code)
    shown = []
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            shown.append(content["text"])
        elif kind == "execute_result":
            shown.append(content["data"]["text/plain"])
        elif kind == "error":
            text = re.sub(r"\x1b\\[[0-9;]*m", "", "\n".join(content["traceback"]))
            raise CellError(text)
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(shown)


def main() -> None:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        run_cell(client, DEFINE)
        run_cell(client, "answer = cells.stop_here.call()")
        pid = run_cell(client, "import os; os.getpid()")
        commands = ["wait cell", "cast cell ranks(:) ll", "cast cell ranks(:) p doubled", "continue"]
        arguments = [part for command in commands for part in ("-c", command)]
        debugger = subprocess.run(
            [sys.executable, "-m", "meshrt.debug", "--pid", pid, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=dict(os.environ),
        )
        values = run_cell(client, "(await answer).values()")
        try:
            shown = run_cell(client, "cells.fail.call().get()")
        except CellError as error:
            shown = str(error)
        run_cell(client, "await mesh.stop()")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)
    print(json.dumps({"debugger": debugger.stdout, "values": values, "shown": shown}))


if __name__ == "__main__":
    main()
