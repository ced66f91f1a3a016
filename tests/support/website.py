"""What MkDocs does not do by itself for the site of the documentation: `make docs`. It calls the functions `on_...`.

The pages of docs/ are links and texts as a code host shows them. On the site,

* README.md is the first page, and CONTRIBUTING.md and the like are pages beside those of docs/;
* any other file that a page links to, such as an example, is a page that shows it;
* there is a reference, of the docstrings of the names in `tests.support.reference` and of the help of all commands;
* nothing is loaded from another host.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import meshrt
from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.commandline.texts import help_of, ordered
from tests.support.notebooks import as_page, stored
from tests.support.programs import ROOT
from tests.support.reference import GROUPS, Group, found_name, is_error

__all__ = [
    "foreign",
    "linked_files",
    "made_pages",
    "on_config",
    "on_files",
    "on_page_markdown",
    "on_post_build",
    "page_of",
    "place_of",
    "rewritten",
    "shown",
    "sources",
    "title_of",
]

#: Pages of the site that are no pages of docs/, by their place in the checkout.
BESIDE = {"README.md": "index.md", **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}}
#: Classes that users make objects of; of others, the parameters are the runtime's.
_BUILT = {"Accumulator", "CommandEngine", "Extent", "LocalEngine", "Point", "RayEngine", "Shape", "Slice"}
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s#]+)?(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*~*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
#: How a browser is told to load something: by an attribute of these elements, or in a style.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\ssrc=[\"']?(?P<src>(?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon|shortcut))[^>]*?\shref=[\"']?(?P<href>(?:https?:)?//[^\"'\s>]+)"
    r"|url\(\s*[\"']?(?P<url>(?:https?:)?//[^\"')\s]+)"
)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".sbatch": "bash", ".toml": "toml"}


def sources() -> dict[str, str]:
    """Return the texts of all pages that are written by hand, by their place in the checkout."""
    places = [*BESIDE, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    return {place: (ROOT / place).read_text("utf-8") for place in places}


def page_of(place: str) -> str:
    """Return which file of the site shows a file of the checkout."""
    if place in BESIDE:
        return BESIDE[place]
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return f"files/{place}.md"


def place_of(page: str) -> str | None:
    """Return the file of the checkout that a page is written in; None: it is made."""
    beside = {name: place for place, name in BESIDE.items()}
    if page in beside:
        return beside[page]
    return None if page.startswith(("files/", "reference/")) else f"docs/{page}"


def _text_parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a page, and whether each is a block of code."""
    end = 0
    for fence in _FENCE.finditer(text):
        yield False, text[end : fence.start()]
        yield True, fence[0]
        end = fence.end()
    yield False, text[end:]


def rewritten(text: str, place: str) -> str:
    """Return a page of the checkout as the site has it: links lead to pages of the site."""
    here = posixpath.dirname(page_of(place))

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        leads = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        text = found["text"] if posixpath.basename(found["text"]) != posixpath.basename(target) else title_of(leads)
        return f"[{text}]({posixpath.relpath(page_of(leads), here or '.')}{found['anchor'] or ''})"

    parts = (_plain_fence(part) if code else _table_pipes(_LINK.sub(link, part)) for code, part in _text_parts(text))
    return "".join(parts).replace("<details>", '<details markdown="1">')


def title_of(place: str) -> str:
    """Return the heading of a page, in place of its file name; of other files, their place."""
    if not place.endswith(".md"):
        return f"`{place}`"
    return (ROOT / place).read_text("utf-8").partition("\n")[0].removeprefix("# ")


def _plain_fence(block: str) -> str:
    """Leave out what a block says to the tests behind its language, and why: MkDocs would not take it for a block."""
    return re.sub(r"\A( *`{3,}\w+) .*$", r"\1", block, flags=re.MULTILINE)


def _table_pipes(text: str) -> str:
    r"""Write `\|` in inline code of a table as `|`: a code host shows that, MkDocs the backslash as well."""
    return "\n".join(
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in text.split("\n")
    )


def linked_files(texts: dict[str, str]) -> list[str]:
    """Return the files of the checkout that pages link to and that are no pages themselves."""
    found = set()
    for place, text in texts.items():
        for code, part in _text_parts(text):
            for match in () if code else _LINK.finditer(part):
                target = match["target"]
                if target and "://" not in target:
                    leads = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
                    if leads not in texts and not leads.startswith("docs/"):
                        found.add(leads)
    return sorted(found)


def shown(place: str) -> str:
    """Return the page that shows a file."""
    if place.endswith(".ipynb"):
        return as_page(stored(ROOT / place))
    text = (ROOT / place).read_text("utf-8")
    fence = "`" * (3 + max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=0))
    return f"# {place}\n\n{fence}{_LANGUAGES.get(Path(place).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def reference(group: Group) -> str:
    """Return the page of the reference about a group of names."""
    page, anchor, heading = group.guide.partition("#")
    guide = f"[{title_of(f'docs/{page}')}](../{page}{anchor}{heading})"
    lines = [f"# {_capital(group.title)}", "", f"Guide: {guide}.", ""]
    for name, members in group.names.items():
        short = name.rpartition(".")[2]
        lines += _entry(
            f"{found_name(name).__module__}.{short}", members.split(), merge_init_into_class=short in _BUILT
        )
    return "\n".join(lines)


def _errors() -> str:
    names = [name for name in meshrt.__all__ if is_error(getattr(meshrt, name))]
    lines = ["# Errors", "", "[What is one of what](../api.md#errors), and [what a user sees](../faults.md).", ""]
    for name in sorted(names):
        lines += _entry(f"meshrt.errors.{name}", [])
    return "\n".join(lines)


def _entry(path: str, members: list[str], **options: bool) -> list[str]:
    # A class shows those of its members that users call, which are named.
    further = [f"      {name}: {str(value).lower()}" for name, value in options.items()]
    return [f"::: {path}", "    options:", f"      members: [{', '.join(members)}]", *further, ""]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _commands() -> str:
    """Return the page with the help of each command, as it is on any machine."""
    lines = [
        "# All commands in full",
        "",
        "`meshrt COMMAND --help` shows them. [What they are for](../commands.md).",
    ]
    for command in ordered(COMMANDS.offered(Offer.SHELL)):
        text = help_of(command, Offer.SHELL).replace(shlex.quote(sys.executable), "python")
        lines += ["", f"## {command.name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def made_pages() -> dict[str, str]:
    """Return the pages of the reference, by their file in the site."""
    pages = {f"reference/{group.title.replace(' ', '-')}.md": reference(group) for group in GROUPS}
    return {"reference/commands.md": _commands(), **pages, "reference/errors.md": _errors()}


def foreign(html: str) -> list[str]:
    """Return what a browser would load from another host to show a page."""
    return [match["src"] or match["href"] or match["url"] for match in _LOADED.finditer(html)]


# ---- called by MkDocs ------------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    """Add the pages that are made to the navigation."""
    files = [{place.removeprefix("examples/"): page_of(place)} for place in linked_files(sources())]
    for entry in config.nav:
        if "Reference" in entry:
            commands, *names = made_pages()
            entry["Reference"].insert(1, commands)
            entry["Reference"].append({"Names in full": names})
    config.nav.append({"Examples": files})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are no files of docs/."""
    from mkdocs.structure.files import File  # optional: the module is used without it

    texts = sources()
    made = {BESIDE[place]: texts[place] for place in BESIDE}
    made |= {page_of(place): shown(place) for place in linked_files(texts)}
    for page, text in {**made, **made_pages()}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have links and tables be those of the site."""
    place = place_of(page.file.src_uri)
    return markdown if place is None else rewritten(markdown, place)


def on_post_build(config: Any) -> None:
    """Raise if a page loads something from another host."""
    from mkdocs.exceptions import PluginError  # optional: the module is used without it

    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in {".html", ".css"} and (found := foreign(path.read_text("utf-8"))):
            raise PluginError(f"{path} loads from other hosts: {', '.join(found)}")
