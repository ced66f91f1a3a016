"""What `make docs` makes of the pages: links, tables, pages of its own. MkDocs itself checks each link and anchor."""

from __future__ import annotations

import re

import pytest

import meshrt
from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from tests.support import website
from tests.support.docstrings import apart
from tests.support.programs import ROOT

__all__: list[str] = []


@pytest.mark.parametrize(
    ("place", "text", "shown"),
    [
        ("README.md", "[docs/tutorial.md](docs/tutorial.md)", "[Tutorial](tutorial.md)"),
        ("README.md", "[types](docs/tutorial.md#types)", "[types](tutorial.md#types)"),
        ("README.md", "![x](docs/types.svg)", "![x](types.svg)"),
        ("docs/tutorial.md", "[x](calls.md#options)", "[x](calls.md#options)"),
        ("docs/tutorial.md", "[x](../README.md#in-vs-code)", "[x](index.md#in-vs-code)"),
        ("docs/memory.md", "[`x`](../examples/memory.py)", "[`x`](files/examples/memory.py.md)"),
        ("docs/api.md", "[x](#errors) [y](https://x.org/docs/a.md)", "[x](#errors) [y](https://x.org/docs/a.md)"),
        (
            "docs/api.md",
            "```python no-run: needs a Ray cluster\n[x](../README.md)\n```\n",
            "```python\n[x](../README.md)\n```\n",
        ),
        ("docs/api.md", "| `a\\|b` | c\\|d |", "| `a|b` | c\\|d |"),
        ("README.md", "<details><summary>x</summary>", '<details markdown="1"><summary>x</summary>'),
    ],
)
def test_a_page_of_the_checkout_as_the_site_has_it(place: str, text: str, shown: str) -> None:
    assert website.rewritten(text, place) == shown


def test_files_that_pages_link_to_are_shown() -> None:
    texts = website.sources()
    files = website.linked_files(texts)
    assert "examples/faults.py" in files and all((ROOT / place).is_file() for place in files)
    assert not set(files) & set(texts)
    assert website.shown("examples/memory.py").startswith("# examples/memory.py\n\n```python\n")
    for place in (*texts, *files):
        made = website.place_of(website.page_of(place))
        assert made == (place if place in texts else None)


def test_the_reference_has_every_name_and_every_command() -> None:
    pages = website.made_pages()
    entries = set(re.findall(r"^::: (?:\w+\.)*(\w+)$", "\n".join(pages.values()), re.MULTILINE))
    assert [name for name in meshrt.__all__ if name not in entries] == []
    headings = re.findall(r"^## (\w+)$", pages["reference/commands.md"], re.MULTILINE)
    assert set(headings) == {command.name for command in COMMANDS.offered(Offer.SHELL)}
    assert str(ROOT) not in "".join(pages.values()), "what depends on the machine"


def test_every_page_is_in_the_navigation() -> None:
    """MkDocs says so, too, where it is installed."""
    listed = set(re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    assert listed == {website.page_of(place) for place in website.sources()}


@pytest.mark.parametrize(
    ("html", "loads"),
    [
        ('<script src="https://cdn.x/a.js"></script>', ["https://cdn.x/a.js"]),
        ("<link rel=stylesheet href=//fonts.x/css>", ["//fonts.x/css"]),
        ('<link href="https://x/a.png" rel="icon">', ["https://x/a.png"]),
        ("@font-face{src:url(https://x/a.woff)}", ["https://x/a.woff"]),
        ('<a href="https://x.org">x</a><script src="assets/a.js"></script><link rel="canonical" href="https://x">', []),
    ],
)
def test_what_is_loaded_from_another_host_is_found(html: str, loads: list[str]) -> None:
    assert website.foreign(html) == loads


def test_sections_of_docstrings_are_set_apart() -> None:
    text = "Does.\n\nArgs:\n    x: One.\nReturns:\n    Two.\nRaises:\n    E: Three."
    assert apart(text) == "Does.\n\nArgs:\n    x: One.\n\nReturns:\n    Two.\n\nRaises:\n    E: Three."
    assert apart(apart(text)) == apart(text)
