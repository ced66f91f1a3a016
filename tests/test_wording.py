"""Messages, help and pages are plain: none of the forms that readers have stumbled over comes back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import ROOT
from tests.support.sources import Source, read_sources

__all__: list[str] = []

PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "design.md")]
#: What was written, and what is plain.
FORMS = {
    r"(?<!here )(?<!which )\b(?:is|are|was|were) no (?!longer\b)[a-z]": "PID 7 is not a rank",
    r"\bwhich (?:is|are|was) no [a-z]": "which is not a rank",
    r"\bthat is none\b": "that is not one",
    r"\beach for itself\b": "one row each",
    r"\bleft to (?:itself|themselves)\b": "no longer waited for",
    r"\blets it go on\b": "resumes it",
    r"\btold of\b": "reported to",
    r"\basked about\b": "called for",
    r"\bis to be had\b|\bcannot be had\b": "cannot be obtained",
    r"\bgoodbye\b": "a disconnect",
    r"\bhung up\b": "has closed the connection",
    r"\bdelivers the exception\b": "passes the exception to the caller",
    r"\bno right to\b": "permission denied",
    r"\bwithout a word\b": "without a message",
    r"\bif there is but\b|\bthere is but one\b": "if there is only one",
}


def texts_of(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are not docstrings, with their lines; what is filled in is `{}`."""
    silent = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in source.nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in source.nodes:
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent | parts:
            yield node.lineno, node.value


def complaints(text: str) -> list[str]:
    """Return what is not plain in a text, with what would be."""
    plain = re.sub(r"\s+", " ", text)
    return [
        f"{found[0]!r}: rather as in {better!r}" for form, better in FORMS.items() for found in re.finditer(form, plain)
    ]


def test_messages_and_help_are_plain() -> None:
    texts = [(source.path, line, text) for source in read_sources("meshrt") for line, text in texts_of(source)]
    assert len(texts) > 5000
    found = [f"{path}:{line}: {problem}" for path, line, text in texts for problem in complaints(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_plain(page: Path) -> None:
    assert complaints(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("{} is no option", 1),
        ("there is no option {}", 0),
        ("this mesh is no longer known", 0),
        ("thread {}, which is no daemon,", 1),
        ("an address that is none; expected", 1),
        ("the launcher could not be told\nof the failure", 1),
        ("kill -CONT {} lets it go on", 1),
    ],
)
def test_forms_are_found(text: str, problems: int) -> None:
    assert len(complaints(text)) == problems
