"""The Python blocks of the documentation run, and print what stands below them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import pages, reference
from tests.support.programs import ROOT, run_python

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """A fenced block, and the output that is shown below it ("" if none is)."""

    language: str
    text: str
    output: str = ""


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page; one without a language right below a Python block is its output."""
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(page):
        language, text = fence.groups()
        below = not page[end : fence.start()].strip()
        if found and below and not language and found[-1].language == "python":
            found[-1].output = text
        else:
            found.append(Block(language, text))
        end = fence.end()
    return found


def python_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == "python"]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    blocks = python_of(page)
    script = tmp_path / "page.py"
    script.write_text("\n".join(f"{block.text}\nprint('END OF BLOCK')" for block in blocks))
    done = run_python(str(script), cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    printed = done.stdout.split("END OF BLOCK\n")
    assert len(printed) == len(blocks) + 1
    for block, output in zip(blocks, printed, strict=False):
        assert not block.output or output == block.output


def test_there_is_something_to_run() -> None:
    """The README shows a program with its output, and the tutorial is made of programs."""
    (example, *_) = python_of(ROOT / "README.md")
    assert example.output
    assert len(python_of(ROOT / "docs" / "tutorial.md")) > 3


def test_blocks_are_found() -> None:
    page = "```python\nprint(1)\n```\n\n```\n1\n```\ntext\n```\nnot output\n```\n```text\nx\n```\n"
    assert blocks_of(page) == [
        Block("python", "print(1)\n", "1\n"),
        Block("", "not output\n"),
        Block("text", "x\n"),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_tables_are_made_of_the_commands(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- made of " in text
    assert text == pages.made(page), "python -m tests.support.pages writes it"


def test_every_public_name_is_in_the_reference() -> None:
    assert reference.missing() == []


def diffs_of(page: Path) -> list[str]:
    return [block.text for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == "diff"]


def parts_of(diff: str) -> list[tuple[str, str, bool]]:
    """Return path and lines of each part of a diff that adds lines, and whether the part is a whole new file."""
    found = []
    path, new = "", False
    for lines in re.split(r"^(?=---|@@)", diff, flags=re.MULTILINE):
        if match := re.match(r"--- (/dev/null\n\+\+\+ b/)?(\S+)\n", lines):
            path, new = match[2], bool(match[1])
        added = [line[1:] for line in lines.splitlines() if line.startswith("+") and not line.startswith("+++ ")]
        if added:
            found.append((path, "\n".join(added) + "\n", new))
    return found


@pytest.mark.parametrize("diff", diffs_of(ROOT / "CONTRIBUTING.md"), ids=lambda diff: parts_of(diff)[0][0])
def test_the_diffs_that_show_how_things_are_added_are_those_of_the_files(diff: str) -> None:
    for path, lines, new in parts_of(diff):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert lines == text if new else "\n" + lines in "\n" + text, f"{path} does not have:\n{lines}"


def test_each_kind_of_addition_has_its_diff_with_its_test() -> None:
    message, operation, command, column, request = map(parts_of, diffs_of(ROOT / "CONTRIBUTING.md"))
    assert [new for _, _, new in command] == [True, False]
    for parts in command, message, operation, column, request:
        assert parts[-1][0].startswith("tests/unit/")


def test_the_parts_of_a_diff() -> None:
    whole = "--- /dev/null\n+++ b/a.py\n+one\n+\n+two\n--- b.py\n+three\n@@\n+four\n"
    assert parts_of(whole) == [
        ("a.py", "one\n\ntwo\n", True), ("b.py", "three\n", False), ("b.py", "four\n", False),
    ]  # fmt: skip
