"""The Python blocks of the documentation run, and print what stands below them."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import pages, reference
from tests.support.free_port import free_port
from tests.support.programs import ROOT, environment, run_python

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Who runs a block that says something behind `python`: not this machine, and why; hosts of this machine.
_ELSEWHERE = re.compile(r"no-run: \w.+|hosts|launch")


@dataclass
class Block:
    """A fenced block, the output that is shown below it ("" if none is), and where it runs ("": as the page does)."""

    language: str
    text: str
    output: str = ""
    runs: str = ""


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page; one without a language right below a Python block is its output."""
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(page):
        language, runs, text = fence.groups()
        below = not page[end : fence.start()].strip()
        if found and below and not language and found[-1].language == "python":
            found[-1].output = text
        else:
            found.append(Block(language, text, runs=runs or ""))
        end = fence.end()
    return found


def python_of(page: Path) -> list[Block]:
    """Return the blocks that run one after the other."""
    return [block for block in _all_python_of(page) if not block.runs]


def _all_python_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page.read_text(encoding="utf-8")) if block.language == "python"]


#: A machine under load may give an agent no time for 3 s: both lines are there then, and the program goes on.
_PAUSE = re.compile(
    r"meshrt: the agent of host (\S+) \(pid \d+\) does not answer; its ranks continue to run\n"
    r"meshrt: the agent of host \1 answers again\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    blocks = python_of(page)
    script = tmp_path / "page.py"
    script.write_text("\n".join(f"{block.text}\nprint('END OF BLOCK')" for block in blocks))
    done = run_python(str(script), cwd=tmp_path)
    assert done.returncode == 0 and _PAUSE.sub("", done.stderr, count=1) == ""
    printed = done.stdout.split("END OF BLOCK\n")
    assert len(printed) == len(blocks) + 1
    for block, output in zip(blocks, printed, strict=False):
        assert not block.output or output == block.output


def needs(page: Path) -> list[str]:
    """Return what a page has installed beside meshrt, at its top: `pip install . '...'`."""
    top = page.read_text(encoding="utf-8").partition("```")[0]
    found = re.search(r"`pip[ ]install \.((?: '[^']+')+)`", top)
    return re.findall(r"'([^']+)'", found[1]) if found else []


def lines_for(runs: str) -> str:
    """Return the blocks that run on hosts, and a line that says which hosts these were."""
    blocks = [block.text for block in _all_python_of(ROOT / "docs" / "clusters.md") if block.runs == runs]
    assert blocks
    return "\n".join([*blocks, "print(mesh.get(60).hosts.names, mesh.size())"])


@pytest.mark.slow
def test_blocks_that_place_hosts_by_ssh(tmp_path: Path) -> None:
    """The command is real, and so are the agents; "ssh" runs them here."""
    stand_in = tmp_path / "ssh"
    stand_in.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    stand_in.chmod(0o755)
    (tmp_path / "page.py").write_text(lines_for("hosts"))
    env = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    done = run_python("page.py", cwd=tmp_path, env=env, seconds=100)
    assert done.returncode == 0 and done.stdout == "('n1', 'n2')\n('n1', 'n2') 16\n", done.stderr


@pytest.mark.slow
def test_blocks_that_meshrt_launch_runs(tmp_path: Path) -> None:
    """Four hosts of eight GPUs each, all of them on this machine."""
    (tmp_path / "page.py").write_text("from meshrt import proc_mesh\n" + lines_for("launch"))
    (tmp_path / "secret").write_text("0" * 32)
    (tmp_path / "secret").chmod(0o600)
    env = environment(
        CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7", MESHRT_HOSTS="4", MESHRT_BIND="127.0.0.1",
        MESHRT_ROOT=f"127.0.0.1:{free_port()}", MESHRT_SECRET_FILE=str(tmp_path / "secret"),
    )  # fmt: skip
    command = [sys.executable, "-m", "meshrt", "launch", "page.py"]
    with contextlib.ExitStack() as stack:
        hosts = [
            stack.enter_context(
                subprocess.Popen(command, cwd=tmp_path, env={**env, "MESHRT_INDEX": str(index)}, stdout=subprocess.PIPE)
            )
            for index in range(4)
        ]
        printed = [host.communicate(timeout=100)[0].decode() for host in hosts]
    assert [host.returncode for host in hosts] == [0] * 4
    assert printed[0].endswith(" 32\n") and printed[0].count("'") == 8 and printed[1:] == [""] * 3


def test_blocks_that_do_not_run_say_why_and_are_python() -> None:
    for block in (block for page in PAGES for block in _all_python_of(page) if block.runs):
        assert _ELSEWHERE.fullmatch(block.runs), block.text
        ast.parse(block.text)


@pytest.mark.slow
def test_pytest_runs_the_tests_of_the_page_on_tests(tmp_path: Path) -> None:
    blocks = python_of(ROOT / "docs" / "testing.md")
    # Without the calls for those who read on in a script: an actor would import the module while it is imported.
    code = "\n".join(re.sub(r"^test_\w+\(\)$", "", block.text, flags=re.MULTILINE) for block in blocks)
    (tmp_path / "test_page.py").write_text(code)
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py", cwd=tmp_path, seconds=100)
    tests = sum(block.text.count("\ndef test_") + block.text.startswith("def test_") for block in blocks)
    assert done.returncode == 0 and f"{tests} passed" in done.stdout and tests > 4


@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)], ids=lambda page: page.name)
def test_what_blocks_import_is_in_the_environment_that_the_page_names(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    installed = [re.split(r"[<>=;]", word)[0].strip() for word in (*project["dependencies"], *needs(page))]
    there = {*sys.stdlib_module_names, "meshrt", *installed}
    tree = ast.parse("\n".join(block.text for block in python_of(page)))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported and sorted(name for name in imported if name.partition(".")[0] not in there) == []


def test_there_is_something_to_run() -> None:
    """The README shows a program with its output, and the tutorial is made of programs."""
    (example, *_) = python_of(ROOT / "README.md")
    assert example.output
    assert len(python_of(ROOT / "docs" / "tutorial.md")) > 3


def test_blocks_are_found() -> None:
    page = "```python\nprint(1)\n```\n\n```\n1\n```\ntext\n```\nnot output\n```\n```text\nx\n```\n"
    page += "```python no-run: x\n2\n```\n"
    assert blocks_of(page) == [
        Block("python", "print(1)\n", "1\n"),
        Block("", "not output\n"),
        Block("text", "x\n"),
        Block("python", "2\n", runs="no-run: x"),
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


def test_every_row_of_the_reference_has_a_text() -> None:
    rows = [row for group in reference.GROUPS for row in reference.rows_of(group.title)]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_exit_codes_have_the_same_words_on_all_pages() -> None:
    rows = [row for page in PAGES for row in re.findall(r"^\| 130 \|.*$", page.read_text("utf-8"), re.MULTILINE)]
    assert len(rows) > 1 and set(rows) == {"| 130 | interrupted (Ctrl-C) |"}


def test_the_summary_of_run_says_what_it_is_for_under_a_launcher() -> None:
    (row,) = re.findall(r"^\| `meshrt run .*\| (.*) \|$", (ROOT / "docs/commands.md").read_text("utf-8"), re.MULTILINE)
    assert row == "run a script on several ranks of this machine, or under a launcher and report its crashes to it"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("more", [[], ["ARGS=-k wire"]], ids=["all", "selected"])
def test_make_test_says_first_how_long_it_takes(more: list[str], tmp_path: Path) -> None:
    words = ["make", "test", f"VENV={tmp_path / 'venv'}", "PYTHON=false", *more]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    first, second, *_ = done.stderr.splitlines()
    assert "about 8 minutes" in first and second.startswith("cannot run "), "said before the environment is made"
    assert "(8 minutes on two processors)" in (ROOT / "README.md").read_text("utf-8")


def test_make_smoke_runs_tests_that_there_are() -> None:
    done = subprocess.run(["make", "-n", "smoke"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    words = [word for word in done.stdout.split() if word.startswith("tests/")]
    assert len(words) > 8 and [word for word in words if not (ROOT / word).exists()] == []


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
