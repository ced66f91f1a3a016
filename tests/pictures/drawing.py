"""Screens of a terminal as SVG: one, or several in turn."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

__all__ = ["Screen", "animated", "still", "words"]

#: The lines of a terminal.
Screen = Sequence[Text]

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_TEXT = re.compile(r"<text[^>]*>(.*?)</text>")
#: One frame after the other, for ever; who wants no motion sees the last one.
_MOVING = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">
<style>
.frame {{ visibility: hidden; animation: {seconds:g}s step-end infinite; }}
{steps}
@media (prefers-reduced-motion: reduce) {{
.frame {{ animation: none; }}
.frame:last-of-type {{ visibility: visible; }}
}}
</style>
{frames}
</svg>
"""


def still(screen: Screen, title: str, width: int, name: str) -> str:
    """Return a picture of a screen; ``name``: prefix of the identifiers in it, unique on a page."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in screen:
        console.print(line, no_wrap=True, crop=True)
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    return _FONTS.sub("", svg)  # they would be fetched from elsewhere


def animated(frames: Sequence[tuple[float, Screen]], title: str, width: int, name: str) -> str:
    """Return a picture that shows each screen for so many seconds."""
    whole = sum(seconds for seconds, _screen in frames)
    height = max(len(screen) for _seconds, screen in frames)
    steps, drawn, passed, box = [], [], 0.0, ""
    for number, (seconds, screen) in enumerate(frames):
        svg = still([*screen, *[Text()] * (height - len(screen))], title, width, f"{name}-{number}")
        found = re.search(r'viewBox="([^"]*)"', svg)
        assert found is not None
        box = found[1]
        begin, end = 100 * passed / whole, 100 * (passed + seconds) / whole
        states = {0.0: "hidden", begin: "visible", end: "hidden"}
        shown = " ".join(f"{at:.3f}% {{ visibility: {state}; }}" for at, state in states.items())
        steps.append(f".{name}-{number}-frame {{ animation-name: {name}-{number}; }}")
        steps.append(f"@keyframes {name}-{number} {{ {shown} }}")
        drawn.append(f'<g class="frame {name}-{number}-frame">{svg}</g>')
        passed += seconds
    return _MOVING.format(box=box, seconds=whole, steps="\n".join(steps), frames="\n".join(drawn))


def words(svg: str) -> str:
    """Return what a picture says, without spaces: where its letters are depends on the version of rich."""
    return "".join(html.unescape("".join(_TEXT.findall(svg))).split())
