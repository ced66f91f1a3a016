"""Values that look like secrets, by their names: they are not written into files."""

from __future__ import annotations

import re

__all__ = ["MASK", "masked", "without_secrets"]

#: What stands for a value that looks like a secret.
MASK = "<masked>"
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|credential|private_?key|api_?key|access_?key|auth(orization)?$|cookie", re.I
)
#: A key that names a secret, and its value, in the text of a dict, a dataclass, a header or a query.
_PAIR = re.compile(
    r"""(?P<key>['"]?[\w-]*(?:pass(?:w(?:or)?d|phrase)|secret|token|credential|private[_-]?key|api[_-]?key|access[_-]?key"""
    r"""|authorization|cookie)\w*['"]?\s*[:=]\s*)(?:'[^']*'|"[^"]*"|(?:(?:bearer|basic)\s+)?[^\s,;)}\]]+)""",
    re.I,
)
#: The password within an address, and what a header shows by itself.
_ADDRESS = re.compile(r"""(?P<key>\b[a-z][a-z0-9+.-]*://[^\s/:@'"]*:)[^\s/@'"]+(?=@)""", re.I)
_BEARER = re.compile(r"(?P<key>\bbearer\s+)[\w.~+/=-]{16,}", re.I)


def masked(name: str) -> bool:
    """Whether a variable of this name probably holds a secret."""
    return _SECRET.search(name) is not None


def without_secrets(text: str) -> str:
    """Return the text of a value without what stands behind keys that name secrets, or looks like one by itself."""
    for pattern in (_PAIR, _ADDRESS, _BEARER):
        text = pattern.sub(lambda match: match["key"] + MASK, text)
    return text
