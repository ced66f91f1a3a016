"""What is loaded where a machine has something else than the root, or nothing."""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
import linecache
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.actor.errors import describe_exception
from meshrt.host.code import finder as finder_module
from meshrt.host.code.absent import why_absent
from meshrt.host.code.asking import NoAnswerError
from meshrt.host.code.finder import RootFinder
from meshrt.transport.threads import RuntimeThread
from meshrt.wire.code import Code, digest_of


class Root:
    """Answers from two dicts: sources by module, and files by package and name."""

    def __init__(self) -> None:
        self.modules: dict[str, Code] = {}
        self.files: dict[tuple[str, str], Code] = {}
        self.asked: list[str] = []
        self.silent = False

    def add(self, module: str, path: str, text: str, places: list[str] | None = None) -> None:
        data = text.encode()
        self.modules[module] = Code(1, "source", path, places, digest_of(data), len(data), data)

    def ask(self, module: str, file: str = "", known: str = "", limit: float | None = None) -> Code:
        self.asked.append(module)
        if self.silent:
            raise NoAnswerError("it is silent")
        if file:
            return self.files.get((module, file), Code(1, "absent"))
        code = self.modules.get(module, Code(1, "absent"))
        return code if not known or known != code.digest else Code(1, code.kind, code.path, code.places, code.digest)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    made = Root()
    modules, lines = set(sys.modules), set(linecache.cache)
    monkeypatch.setattr(sys, "meta_path", [RootFinder(made, -1, "n1"), *sys.meta_path])
    yield made
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    for name in set(linecache.cache) - lines:
        del linecache.cache[name]


def load(name: str) -> Any:
    return importlib.import_module(name)


def test_a_module_that_is_not_here_runs_as_it_is_at_the_root(root: Root) -> None:
    root.add("fetched_one", "/root/only/fetched_one.py", "def fails():\n    raise ValueError('x')  # the text\n")
    module = load("fetched_one")
    assert module.__file__ == module.fails.__code__.co_filename == "/root/only/fetched_one.py"
    assert module.__spec__.has_location
    with pytest.raises(ValueError, match="x") as caught:
        module.fails()
    assert "raise ValueError('x')  # the text" in "".join(traceback.format_exception(caught.value))


def test_packages_their_modules_and_namespaces(root: Root) -> None:
    root.add("fetched_p", "/root/p/__init__.py", "from . import inner\n", ["/root/p"])
    root.add("fetched_p.inner", "/root/p/inner.py", "NAME = __name__\n")
    root.modules["fetched_n"] = Code(1, "namespace", places=["/root/n"])
    root.add("fetched_n.inner", "/root/n/inner.py", "NAME = __name__\n")
    assert load("fetched_p").inner.NAME == "fetched_p.inner"
    assert list(load("fetched_p").__path__) == ["/root/p"]
    assert load("fetched_n.inner").NAME == "fetched_n.inner"


def test_what_nobody_has_is_not_found_and_what_is_installed_at_the_root_is_noted(root: Root) -> None:
    root.modules["only_there"] = Code(1, "installed", "/venv/site-packages/only_there.py")
    there = "host n1 has no such module; the script's machine has /venv/site-packages/only_there.py"
    for name, why in (("nobody_has", ""), ("only_there", there)):
        assert importlib.util.find_spec(name) is None
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'") as caught:
            load(name)
        assert why_absent(name) == why
        for _ in range(2):
            assert describe_exception(caught.value).notes == ((why,) if why else ())


def test_what_cannot_be_sent_is_an_error_of_the_import_alone(root: Root) -> None:
    root.modules["built"] = Code(1, "refused", why="/x/built.so is compiled")
    assert importlib.util.find_spec("built") is not None
    with pytest.raises(ImportError, match=r"module built cannot be fetched by n1: /x/built.so is compiled"):
        load("built")


def test_a_root_that_is_silent_is_an_error(root: Root) -> None:
    root.silent = True
    with pytest.raises(ImportError, match="module nobody_has cannot be fetched: it is silent"):
        load("nobody_has")


def test_not_asked_for_python_meshrt_and_what_packages_have_that_are_installed(root: Root) -> None:
    for name in ("json.nothing", "_winapi", "meshrt.nothing", "msgspec.nothing"):
        with pytest.raises(ModuleNotFoundError):
            load(name)
    assert root.asked == []


def test_the_thread_that_serves_the_root_does_not_ask_and_the_agent_does_not(root: Root) -> None:
    found: list[object] = []
    thread = RuntimeThread(target=lambda: found.append(importlib.util.find_spec("nobody_has")))
    thread.start()
    thread.join(20)
    assert found == [None]
    assert RootFinder(root, os.getpid(), "n1").find_spec("nobody_has") is None
    assert root.asked == []


class Here:
    """A file of this machine."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "on_both.py"
        self.path.write_text("WHERE = 'here'\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Here(tmp_path)


def test_the_same_file_is_loaded_here(root: Root, here: Here) -> None:
    root.add("on_both", str(here.path), "WHERE = 'here'\n")
    assert type(load("on_both").__loader__).__name__ == "SourceFileLoader"
    assert str(here.path) in finder_module.compared


def test_another_file_of_the_same_path_is_not(root: Root, here: Here) -> None:
    root.add("on_both", str(here.path), "WHERE = 'at the root'\n")
    assert load("on_both").WHERE == "at the root"
    linecache.checkcache()
    assert linecache.getline(str(here.path), 1) == "WHERE = 'at the root'\n"


def test_the_same_text_at_another_path_has_the_path_of_the_root(root: Root, here: Here) -> None:
    root.add("on_both", "/root/on_both.py", "WHERE = 'here'\n")
    assert load("on_both").__file__ == "/root/on_both.py"


def test_a_file_that_the_root_does_not_have_is_loaded(root: Root, here: Here) -> None:
    assert load("on_both").WHERE == "here"


def test_a_module_of_the_script_goes_before_a_library_of_that_name(root: Root) -> None:
    root.add("tabulate", "/root/tabulate.py", "WHERE = 'at the root'\n")
    loaded = sys.modules.pop("tabulate", None)
    try:
        assert load("tabulate").WHERE == "at the root"
    finally:
        del sys.modules["tabulate"]
        if loaded is not None:
            sys.modules["tabulate"] = loaded


def test_files_of_a_package(root: Root) -> None:
    root.add("fetched_f", "/root/f/__init__.py", "", ["/root/f"])
    root.files["fetched_f", "."] = Code(1, "directory", "/root/f", ["data/", "__init__.py"])
    root.files["fetched_f", "data"] = Code(1, "directory", "/root/f/data", ["table.txt"])
    root.files["fetched_f", "data/table.txt"] = Code(1, "file", "/root/f/data/table.txt", size=3, data="äx".encode())
    load("fetched_f")
    files = importlib.resources.files("fetched_f")
    assert [each.name for each in files.iterdir()] == ["data", "__init__.py"]
    table = files.joinpath("data", "table.txt")
    assert (table.read_text(), table.is_file(), table.is_dir(), (files / "data").is_dir()) == ("äx", True, False, True)
    with table.open(encoding="latin-1") as file:
        assert len(file.read()) == 3
    with importlib.resources.as_file(table) as path:
        assert path.read_bytes() == "äx".encode()
    assert pkgutil.get_data("fetched_f", "data/table.txt") == "äx".encode()
    with pytest.raises(FileNotFoundError):
        (files / "none").read_bytes()
    with pytest.raises(IsADirectoryError):
        (files / "data").read_bytes()
    assert not (files / "none").is_file()
