"""The notebooks in examples/: run in a kernel, and shown as pages.

``python -m tests.support.notebooks`` runs them and stores what their cells show; a test runs them and compares.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

from tests.support.programs import ROOT, environment

__all__ = ["NOTEBOOKS", "as_page", "run", "shown_by", "stored"]

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: What differs between two runs, two machines or two versions of Python, and what is stored instead.
_STEADY = (
    (re.compile(r"ipykernel_\d+"), "ipykernel_4711"),
    (re.compile(r"\bpid \d+"), "pid 4711"),
    (re.compile(rf"\bon {re.escape(socket.gethostname())}\b"), "on node1"),
    (re.compile(r"blocked (?:< )?\d+ s"), "blocked 2 s"),
    (re.compile(r"python3\.\d+/(\w+\.py):\d+"), r"python3/\1"),
    (re.compile(r"^Python 3\.11 traces every call.*\n", re.MULTILINE), ""),
    # Comes when it comes: perhaps only while a later cell runs.
    (re.compile(r"^\[trainer dp=\d,tp=\d\] .*RuntimeWarning.*\n\s*", re.MULTILINE), ""),
    (re.compile(r"\r\n"), "\n"),
)


def run(path: Path) -> dict[str, Any]:
    """Run all cells of a notebook. Returns it as JSON has it, with what they show now."""
    import nbclient  # type: ignore[import-not-found, unused-ignore]  # optional: this module is for pages, too
    import nbformat  # type: ignore[import-not-found, unused-ignore]  # optional: as above

    notebook = nbformat.from_dict(stored(path))  # type: ignore[no-untyped-call, unused-ignore]
    scripts = os.path.dirname(sys.executable)
    env = environment(PATH=os.pathsep.join([scripts, os.environ["PATH"]]), COLUMNS="120", TERM="dumb")
    client = nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", record_timing=False)
    client.execute(cwd=str(path.parent), env=env)
    found: dict[str, Any] = json.loads(json.dumps(notebook))
    found["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in found["cells"]:
        _keep_steady(cell)
    return found


def stored(path: Path) -> dict[str, Any]:
    """Return a notebook as it is."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for cell in found["cells"]:
        cell["source"] = "".join(cell["source"])
    return found


def _keep_steady(cell: dict[str, Any]) -> None:
    """Replace what differs between two runs; parts of one stream are one output, however they came."""
    outputs: list[dict[str, Any]] = []
    for output in map(_steady, cell.get("outputs", ())):
        stream = output.get("name")
        if stream and outputs and outputs[-1].get("name") == stream:
            outputs[-1]["text"] += output["text"]
        elif not stream or output["text"]:
            outputs.append(output)
    if "outputs" in cell:
        cell["outputs"] = outputs


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_steady, value))
    if isinstance(value, str):
        for pattern, instead in _STEADY:
            value = pattern.sub(instead, value)
    return value


def shown_by(cell: dict[str, Any]) -> str:
    """Return what a cell shows, as text; of an error its message: tracebacks differ between versions of IPython."""
    shown = []
    for output in cell.get("outputs", ()):
        error = f"{output['ename']}: {output['evalue']}" if "ename" in output else ""
        text = output.get("text") or error or output["data"]["text/plain"]
        shown.append(_COLOURS.sub("", text).rstrip())
    return "\n".join(shown)


def as_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page of Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = cell["source"]
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shell = all(line.startswith("!") for line in source.splitlines())
        parts.append(f"```{'bash' if shell else 'python'}\n{source}\n```")
        if shown := shown_by(cell):
            parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    for path in NOTEBOOKS:
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
