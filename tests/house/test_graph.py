"""Who imports whom, on a few lines of made-up modules."""

from __future__ import annotations

import pytest

from tests.house.graph import SMALL, circles, crumbs, import_graph
from tests.support.sources import Source


def sources(**texts: str) -> list[Source]:
    """Modules of ``meshrt/p``, by name; ``init`` is the package itself."""
    names = {name: "__init__" if name == "init" else name for name in texts}
    return [Source(f"meshrt/p/{names[name]}.py", text) for name, text in texts.items()]


def circles_of(**texts: str) -> list[list[str]]:
    found = circles(import_graph(sources(**texts)))
    return [[path.removeprefix("meshrt/p/").removesuffix(".py") for path in circle] for circle in found]


@pytest.mark.parametrize(
    "text",
    [
        "import meshrt.p.a",
        "from meshrt.p import a",
        "from meshrt.p.a import x",
        "from . import a",
        "from .a import x",
        "def f():\n    from meshrt.p.a import x",
        "if TYPE_CHECKING:\n    from meshrt.p.a import x",
        "import importlib\nimportlib.import_module('meshrt.p.a')",
    ],
)
def test_every_kind_of_import_closes_a_circle(text: str) -> None:
    assert circles_of(a="from meshrt.p.b import y", b=text) == [["a", "b"]]


def test_a_circle_may_be_long_and_is_found_once() -> None:
    assert circles_of(
        a="from . import b",
        b="from . import c, d",
        c="from . import a",
        d="from . import e",
        e="from . import d",
    ) == [["a", "b", "c"], ["d", "e"]]


def test_imports_in_one_direction_are_no_circle() -> None:
    assert circles_of(a="from . import b, c", b="from . import c", c="import os, meshrt.other") == []


def test_a_package_is_a_module_and_loading_it_on_the_way_is_no_import() -> None:
    assert circles_of(init="from .a import x", a="from .b import y", b="") == []
    assert circles_of(init="from .a import x", a="from .b import y", b="from meshrt.p import x") == [
        ["__init__", "a", "b"]
    ]


def crumbs_of(**texts: str) -> list[tuple[str, str]]:
    modules = sources(**texts)
    return [(one[9:-3], other[9:-3]) for one, other in crumbs(modules, import_graph(modules))]


def test_a_small_module_with_one_importer_is_found() -> None:
    assert crumbs_of(a="from .b import x\nfrom .b import y", b="x = 1\n") == [("b", "a")]


def test_a_module_with_two_importers_or_with_none_is_not_meant() -> None:
    assert crumbs_of(a="from . import b", b="", c="from . import b") == []


def test_all_lines_of_a_module_count() -> None:
    assert crumbs_of(a="from . import b", b="#\n" * (SMALL - 1)) == [("b", "a")]
    assert crumbs_of(a="from . import b", b="#\n" * SMALL) == []


def test_packages_and_programs_are_not_meant() -> None:
    assert crumbs_of(init="", a="from meshrt.p import x\nimport meshrt.p.__main__", __main__="") == []
