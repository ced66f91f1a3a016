"""The picture of an editor in README: its errors are those that README shows as text, which are those of pyright.

``python -m tests.support.picture`` writes it; a test checks that it is written.
"""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.programs import ROOT

__all__ = ["PICTURE", "drawn", "words"]

PICTURE = ROOT / "docs" / "types.svg"
_BLOCK = re.compile(r"```\n(trainers\.step\.call\(0\.1\).*?)```", re.DOTALL)
_LINE = re.compile(r"(?P<code>.*?\S) +# (?P<message>.*)")


def drawn(page: str) -> str:
    """Return the picture of the lines ``CODE  # MESSAGE`` of README."""
    found = _BLOCK.search(page)
    assert found is not None
    console = Console(record=True, width=120, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, line in enumerate(found[1].splitlines(), 8):
        parts = _LINE.fullmatch(line)
        assert parts is not None
        known = parts["code"].startswith("reveal_type")
        code = Syntax("", "python", theme="monokai", background_color="default").highlight(parts["code"])
        code.rstrip()
        code.stylize("" if known else "underline")
        message = Text(f"{'i' if known else '●'} {parts['message']}", style="cyan" if known else "bright_red")
        console.print(Text(f"{number:>4}  ", style="bright_black") + code + Text("   ") + message, no_wrap=True)
    svg = console.export_svg(title="train.py", theme=MONOKAI, unique_id="types")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # fonts would be fetched from elsewhere


def words(svg: str) -> str:
    """Return what a picture says, without spaces: where its letters are depends on the version of rich."""
    return "".join(html.unescape("".join(re.findall(r"<text[^>]*>(.*?)</text>", svg))).split())


def main() -> None:
    PICTURE.write_text(drawn(Path(ROOT / "README.md").read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
