"""What texts of this project advise to install: nothing but this project and what it requires.

Every file that people read is searched for the commands of installers. A name that is not in pyproject.toml may be that
of somebody else's package, or become that: on an index anybody can take it. And what the pages show of the `meshrt`
command is something that it understands.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.errors import MeshError
from tests.support.programs import ROOT

__all__: list[str] = []

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
GROUPS: dict[str, list[Any]] = PYPROJECT["dependency-groups"]

_SUFFIXES = {"", ".cfg", ".ini", ".ipynb", ".js", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
_FOLDERS = ("meshrt", "docs", "examples", "bench", "tests", ".ci")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(?=$|[\[<>=!~ ])")
#: An installer, what it is to do, and the words behind that, to the end of the line or of the quotation.
_COMMAND = re.compile(
    r"\b(?:pip3?|pipx|uv|uvx|conda|mamba|poetry|pdm|easy_install)\s+"
    r"(?:pip\s+|tool\s+)?(?:install|inject|add|run|upgrade)\b(?P<rest>[^`\n;#|&)]*)"
)
_WORDS = re.compile(r"""'[^']*'|"[^"]*"|[^\s'"]+""")
#: Options of installers, with a value behind them or not.
_VALUED = {"--group", "--python", "--prefix", "--target", "--index-url"}
_PLAIN = {"-q", "-qq", "-U", "--upgrade", "-e", "--editable", "--dry-run", "--no-deps"}
#: What a program fills in.
_FILLED = re.compile(r"[${<]|\.\.\.$")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match, requirement
    return canonical(match[0])


def known() -> set[str]:
    """The names of this project's distribution and of all that it requires, for whatever purpose."""
    lists = [PROJECT["dependencies"], PYPROJECT["build-system"]["requires"], *EXTRAS.values(), *GROUPS.values()]
    required = {name_of(each) for group in lists for each in group if isinstance(each, str)}
    return {canonical(PROJECT["name"]), "pip", *required}


KNOWN = known()


@dataclass(frozen=True)
class Advice:
    """A command of an installer in a text."""

    line: int
    command: str
    words: tuple[str, ...]

    def problem(self) -> str:
        """Return what is wrong with it, or ""."""
        words = iter(self.words)
        for word in words:
            if _FILLED.search(word):
                continue
            if word in _VALUED:
                value = next(words, "")
                if word == "--group" and value not in GROUPS and not _FILLED.search(value):
                    return f"there is no dependency group {value!r}"
            elif word.startswith("-"):
                if word not in _PLAIN:
                    return f"{word} is an option that this test does not know"
            elif problem := _problem_of(word):
                return problem
        return ""


def _problem_of(requirement: str) -> str:
    if re.fullmatch(r"dist/\*\.whl", requirement):
        return ""  # what `python -m build` makes of this project
    path, bracket, extras = requirement.rstrip("]").partition("[")
    unknown = [extra for extra in extras.split(",") if extra not in EXTRAS] if bracket else []
    if path == "." or canonical(path) == canonical(PROJECT["name"]):
        return f"there is no extra {unknown}" if unknown else ""
    if not _NAME.match(requirement) or name_of(requirement) not in KNOWN:
        return f"{requirement!r} is neither this project nor a requirement of it (pyproject.toml)"
    return ""


def advice_in(text: str) -> Iterator[Advice]:
    """Every command of an installer in a text."""
    for match in _COMMAND.finditer(text):
        words = tuple(word.strip("'\"") for word in _WORDS.findall(match["rest"].replace("\\", " ")))
        yield Advice(text.count("\n", 0, match.start()) + 1, match[0], tuple(filter(None, words)))


def texts() -> list[Path]:
    """Every file of the project that people read, this one excepted."""
    files = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    for folder in _FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    skipped = {"node_modules", "__pycache__", "results"}
    return sorted(
        path
        for path in files
        if path.suffix in _SUFFIXES and not skipped & set(path.parts) and path != Path(__file__).resolve()
    )


def test_all_advice_names_this_project_or_a_requirement_of_it() -> None:
    given = [(path.relative_to(ROOT), advice) for path in texts() for advice in advice_in(path.read_text("utf-8"))]
    found = [
        f"{path}:{advice.line}: {advice.command}: {advice.problem()}" for path, advice in given if advice.problem()
    ]
    assert given and not found, "\n".join(found)


def test_requirements_in_the_documentation_have_the_versions_of_the_project() -> None:
    allowed = {each for group in (*EXTRAS.values(), *GROUPS.values()) for each in group if isinstance(each, str)}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = [(page, word) for page in pages for each in advice_in(page.read_text("utf-8")) for word in each.words]
    named = [(page, word) for page, word in shown if _NAME.match(word) and name_of(word) != canonical(PROJECT["name"])]
    assert named and [each for each in named if each[1] not in allowed] == []


def test_nothing_is_installed_by_the_name_of_the_package() -> None:
    """Somebody else's project has it."""
    assert canonical(PROJECT["name"]) != "meshrt" and "meshrt" not in KNOWN
    extras = "|".join(map(re.escape, EXTRAS))
    found = [path for path in texts() if re.search(rf"\bmeshrt\[(?:{extras})\b", path.read_text("utf-8"))]
    assert not found, found


def test_the_section_on_installing_names_all_extras() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    section = readme.partition("\n## Install\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(EXTRAS)
    assert [advice.words for advice in advice_in(section)][:3] == [(".",), ("build>=1.2",), ("dist/*.whl",)]
    assert f"named `{PROJECT['name']}`" in section


def test_the_name_of_the_distribution_is_said_in_one_place() -> None:
    """Code looks it up; people read it where the way to install this project is told."""
    name = PROJECT["name"]
    saying = {path.relative_to(ROOT).as_posix() for path in texts() if name in path.read_text("utf-8")}
    assert saying == {"pyproject.toml", "README.md", "CHANGELOG.md"}


#: A line that is typed: behind a prompt, or as inline code. Assignments, launchers and the like may be in front.
_TYPED = re.compile(r"^\$ (?:.*?[ /])?(?:-m )?meshrt(\.debug)?(?: (?P<rest>.+))?$", re.MULTILINE)
_INLINE = re.compile(r"`(?:-m )?meshrt (?P<rest>[a-z][^`\n]*)`")
#: What a shell ends a command with.
_END = re.compile(r"\s+(?:#|[|&;>]).*$")


def problem_of_line(module: str | None, rest: str | None) -> str:
    """Return what `meshrt` says to a line that pages show, or ""."""
    words = [*(["debug"] if module else []), *shlex.split(_END.sub("", rest or ""))] or ["help"]
    try:
        COMMANDS.parse_words(words, Offer.SHELL)
    except MeshError as error:
        return f"{rest}: {error}"
    return ""


def test_lines_that_pages_show_are_understood() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    typed = [(page.name, match) for page in pages for match in _TYPED.finditer(page.read_text("utf-8"))]
    found = [(name, problem) for name, match in typed if (problem := problem_of_line(match[1], match["rest"]))]
    assert len(typed) > 40 and not found, "\n".join(map(str, found))
    # What is said of a command need not have all arguments; it has to exist.
    texts = [
        page.read_text("utf-8") for page in pages if page.name != "design.md"
    ]  # which tells what is not there, too
    named = {match["rest"].split()[0] for text in texts for match in _INLINE.finditer(text)}
    assert len(named) > 15 and sorted(name for name in named if COMMANDS.get(name) is None) == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("$ meshrt where                 # from another terminal", ""),
        ("$ torchrun --standalone -m meshrt run ddp.py --lr 1", ""),
        ("$ .venv/bin/python -m meshrt.debug", ""),
        ("$ python -m meshrt.debug --nothing", "--nothing"),
        ("$ MESHRT_RUNS=/x /env/bin/meshrt ps | less", ""),
        ("$ meshrt were", "no command 'were'"),
    ],
)
def test_lines_that_are_typed_are_found_and_judged(line: str, wrong: str) -> None:
    match = _TYPED.search(line) or pytest.fail("not found")
    problem = problem_of_line(match[1], match["rest"])
    assert wrong in problem if wrong else not problem


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`pip install 'meshrt[top]'` into it", "'meshrt[top]' is neither"),
        ("pip install meshrt", "'meshrt' is neither"),
        ('f"needs it: python -m pip install {what}"', ""),
        ("(pip install --group dap)", ""),
        ("pip install --group nothing", "no dependency group 'nothing'"),
        ("python -m pip install -qq --group test", ""),
        ("pip install '.[dap,top]'", ""),
        ("pip install '.[dap,tops]'", "no extra ['tops']"),
        ("pip install --editable .", ""),
        (f"uv tool install {PROJECT['name']}[top]", ""),
        ("uv pip install --python /x/python 'textual>=8.0' 'textual_serve>=1.1'", ""),
        ("uv add textual-server", "'textual-server' is neither"),
        ("pipx inject meshrt textual", "'meshrt' is neither"),
        ("type pip install textual, then go on", "'textual,' is neither"),
        ("pip install --find-links=http://x textual", "is an option that this test does not know"),
        ("pip install ./other", "is neither"),
        ("pip install dist/*.whl", ""),
        ("pip install dist/other.whl", "is neither"),
    ],
)
def test_advice_is_found_and_judged(text: str, wrong: str) -> None:
    (advice,) = advice_in(text)
    assert wrong in advice.problem() if wrong else not advice.problem()


def test_ci_installs_what_tests_are_skipped_without() -> None:
    """Otherwise they never run."""
    skipped = re.compile(r"skipif\(\s*importlib\.util\.find_spec\(\"(\w+)\"\) is None")
    needed = {name for path in (ROOT / "tests").rglob("*.py") for name in skipped.findall(path.read_text("utf-8"))}
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for name in needed:
        groups = [group for group, parts in GROUPS.items() if any(str(each).startswith(name.lower()) for each in parts)]
        assert any(f"optional .venv {group} " in script for group in groups) or "dev" in groups, name
