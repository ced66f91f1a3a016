"""What docs/json.md says of keys, for tests that compare it with what is printed."""

from __future__ import annotations

import re
from typing import Any

from tests.support.programs import ROOT

__all__ = ["documented", "keys_of", "keys_told", "parts_of", "section"]

PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return the text of a section."""
    _, found, text = PAGE.partition(f"## {title}\n")
    assert found, title
    return text.partition("\n## ")[0]


def keys_of(value: Any) -> set[str]:
    """Return every key in ``value``, however deep."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def documented() -> tuple[dict[str, str], dict[str, str]]:
    """Return what docs/json.md says of the keys: by command, and by part of the stacks of ``where``."""
    rows = [line.split(" | ", 1) for line in section("By command").splitlines() if line.startswith("| `")]
    by_command = {word: keys for words, keys in rows for word in re.findall(r"`(\w+)`", words)}
    return by_command, parts_of(section("The stacks of `where`"))


def parts_of(text: str) -> dict[str, str]:
    """Return what a section says of the keys of each part of something."""
    parts = [line.strip("| ").split(" | ", 1) for line in text.splitlines() if line.startswith("| ")]
    return {part.partition(":")[0]: keys for part, keys in parts if not part.startswith("-")}


def keys_told(text: str) -> set[str]:
    """Return the keys that clauses begin with."""
    plain = re.sub(r" *\([^)]*\)", "", text)
    begins = (re.match(r"(?:`\w+`(?:, | and )?)+", clause.strip()) for clause in plain.split(";"))
    return {key for begin in begins if begin is not None for key in re.findall(r"\w+", begin[0].replace(" and ", " "))}
