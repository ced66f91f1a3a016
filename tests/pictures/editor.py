"""The picture of an editor in README: its errors are those that README shows as text, which are those of pyright."""

from __future__ import annotations

import re

from rich.syntax import Syntax
from rich.text import Text

from tests.pictures.drawing import still
from tests.support.programs import ROOT

__all__ = ["PICTURE", "drawn"]

PICTURE = ROOT / "docs" / "types.svg"
_BLOCK = re.compile(r"```\n(trainers\.step\.call\(0\.1\).*?)```", re.DOTALL)
_LINE = re.compile(r"(?P<code>.*?\S) +# (?P<message>.*)")


def drawn(page: str) -> str:
    """Return the picture of the lines ``CODE  # MESSAGE`` of README."""
    found = _BLOCK.search(page)
    assert found is not None
    lines = []
    for number, line in enumerate(found[1].splitlines(), 8):
        parts = _LINE.fullmatch(line)
        assert parts is not None
        known = parts["code"].startswith("reveal_type")
        code = Syntax("", "python", theme="monokai", background_color="default").highlight(parts["code"])
        code.rstrip()
        code.stylize("" if known else "underline")
        message = Text(f"{'i' if known else '●'} {parts['message']}", style="cyan" if known else "bright_red")
        lines.append(Text(f"{number:>4}  ", style="bright_black") + code + Text("   ") + message)
    return still(lines, "train.py", 120, "types")
