"""The badges below the title of README, made of what pyproject.toml says: no other host is asked for them."""

from __future__ import annotations

import html
from typing import Any

__all__ = ["badges"]

#: Pixels of a character, on average, and beside a text.
_CHARACTER, _BESIDE = 6.4, 12
_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{left}: {right}">
<rect width="{width}" height="20" rx="3" fill="#00897b"/>
<path d="M3 0h{inner}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#455a64"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{left_at}" y="14" textLength="{left_length}">{left}</text>
<text x="{right_at}" y="14" textLength="{right_length}">{right}</text>
</g>
</svg>
"""


def badges(project: dict[str, Any]) -> dict[str, str]:
    """Return badges by the names of their files in docs/, from the table ``project`` of pyproject.toml."""
    facts = [each.split(" :: ") for each in project["classifiers"]]
    versions = [each[2] for each in facts if each[:2] == ["Programming Language", "Python"] and "." in each[2]]
    (system,) = (each[-1] for each in facts if each[0] == "Operating System")
    return {
        "badge-python.svg": _badge("Python", " | ".join(versions)),
        "badge-system.svg": _badge("system", system),
        "badge-licence.svg": _badge("licence", project["license"]),
    }


def _badge(left: str, right: str) -> str:
    left_length, right_length = (round(_CHARACTER * len(text)) for text in (left, right))
    divided = left_length + _BESIDE
    return _BADGE.format(
        left=html.escape(left),
        right=html.escape(right),
        left_length=left_length,
        right_length=right_length,
        left_at=divided / 2,
        right_at=divided + (right_length + _BESIDE) / 2,
        inner=divided - 3,
        width=divided + right_length + _BESIDE,
    )
