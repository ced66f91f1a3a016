"""What the root says of its modules, and what it does not send."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.errors import ProtocolError
from meshrt.mesh.code import CodeServer, answer, path_for_hosts
from meshrt.wire.code import PIECE, AskCode, Code, digest_of
from tests.support.waiting import wait_until


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the script's, in front of its search path; nothing in it may run."""
    for name in ("top_level.py", "a_package/__init__.py", "a_package/inner.py", "a_space/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise SystemExit  # {name}\n")
    (tmp_path / "a_package" / "data").mkdir()
    (tmp_path / "a_package" / "data" / "table.txt").write_bytes(b"a table")
    (tmp_path / "built.abi3.so").write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.path_importer_cache.clear()


def ask(module: str, file: str = "", offset: int = 0, known: str = "") -> Code:
    return answer(AskCode(7, module, file, offset, known))


def test_a_module_is_sent_with_its_path_and_is_not_imported(project: Path) -> None:
    data = b"raise SystemExit  # top_level.py\n"
    path = str(project / "top_level.py")
    assert ask("top_level") == Code(7, "source", path, None, digest_of(data), len(data), data)
    assert ask("top_level", known=digest_of(data)).data is None
    assert "top_level" not in sys.modules


def test_packages_and_namespaces_say_where_their_modules_are(project: Path) -> None:
    package = ask("a_package")
    assert (package.kind, package.places) == ("source", [str(project / "a_package")])
    inner = ask("a_package.inner")
    assert (inner.path, inner.places) == (str(project / "a_package" / "inner.py"), None)
    assert (ask("a_space").kind, ask("a_space").places) == ("namespace", [str(project / "a_space")])
    assert ask("a_space.inner").kind == "source"
    assert ask("a_package.nothing").kind == ask("top_level.inner").kind == ask("no.such.module").kind == "absent"


def test_what_comes_with_python_or_is_installed_is_not_sent() -> None:
    assert [ask(name).kind for name in ("sys", "json", "meshrt.mesh.code", "msgspec", "pytest")] == [
        "absent",
        *["installed"] * 4,
    ]


def test_a_compiled_module_is_refused_with_the_reason(project: Path) -> None:
    refused = ask("built")
    assert (refused.kind, refused.why) == (
        "refused",
        f"{project}/built.abi3.so is compiled; install it on that machine",
    )


@pytest.mark.parametrize(
    "name", ["../top_level", ".", "a_package..inner", "a_package./inner", "", "a\0b", "/etc/passwd"]
)
def test_names_that_are_none(project: Path, name: str) -> None:
    assert ask(name).kind == "absent"


@pytest.mark.parametrize("file", ["../top_level.py", "/etc/passwd", "data/../../top_level.py", "data/\0"])
def test_files_of_a_package_are_below_its_directory(project: Path, file: str) -> None:
    refused = ask("a_package", file)
    assert refused.kind == "refused" and "is not below the directory of package a_package" in refused.why


def test_files_of_a_package(project: Path) -> None:
    table = ask("a_package", "data/table.txt")
    assert (table.kind, table.data, table.size) == ("file", b"a table", 7)
    assert ask("a_package", "data/table.txt", known=table.digest).data is None
    assert ask("a_package", "data/table.txt", 2).data == b"table"
    assert ask("a_package", ".").places == ["__init__.py", "data/", "inner.py"]
    assert ask("a_package", "none").kind == ask("top_level", "x").kind == ask("json", "__init__.py").kind == "absent"


def test_a_long_text_comes_in_pieces(project: Path) -> None:
    text = b"#" * (PIECE + 5)
    (project / "long.py").write_bytes(text)
    first, second = ask("long"), ask("long", "", PIECE)
    assert (len(first.data or b""), second.data, first.size) == (PIECE, b"#####", len(text))
    assert first.digest == second.digest


def test_a_module_in_an_archive_is_sent_as_its_loader_reads_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(project / "app.zip", "w") as archive:
        archive.writestr("archived.py", "X = 1\n")
    monkeypatch.syspath_prepend(str(project / "app.zip"))
    assert (ask("archived").data, ask("archived").path) == (b"X = 1\n", str(project / "app.zip" / "archived.py"))


def test_a_finder_of_the_script_is_asked_and_its_errors_are_the_answer(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            if name == "mapped_away":
                return importlib.util.spec_from_file_location(name, project / "top_level.py")
            if name == "fails":
                raise RuntimeError("as asked")
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert ask("mapped_away").path == str(project / "top_level.py")
    assert (ask("fails").kind, ask("fails").why) == ("refused", "RuntimeError: as asked")


def test_texts_by_file_name_are_those_of_the_program(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert ask("", str(project / "top_level.py")).kind == "source"
    assert ask("", __file__).data == Path(__file__).read_bytes()
    foreign = tmp_path_factory.mktemp("foreign") / "secret.py"
    foreign.write_text("x = 1\n")
    for name in (str(foreign), "/etc/passwd", str(project / ".." / foreign.parent.name / "secret.py"), "top_level.py"):
        assert ask("", name).kind == "absent"


def test_a_search_path_for_hosts_has_one_place_for_all_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = os.path.dirname(os.__file__)
    archive = f"/usr/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"
    monkeypatch.chdir(tmp_path)
    entries = ["", archive, library, f"{library}/lib-dynload", "/venv/lib/site-packages", "src", "/checkout"]
    here = os.fsencode(tmp_path)
    assert path_for_hosts(entries) == [here, b"", here + b"/src", b"/checkout"]
    assert path_for_hosts(["/a"]) == [b"/a", b""]


def test_the_server_answers_on_a_thread_of_its_own(project: Path) -> None:
    answers: list[Code] = []
    server = CodeServer()
    server.ask(AskCode(1, "top_level"), answers.append)
    server.ask(AskCode(2, "no_such_module"), answers.append)
    wait_until(lambda: len(answers) == 2, 20)
    assert [(code.id, code.kind) for code in answers] == [(1, "source"), (2, "absent")]

    def refuses(code: Code) -> None:
        answers.append(code)
        if code.kind == "source":
            raise ProtocolError("too long")

    server.ask(AskCode(3, "top_level"), refuses)
    wait_until(lambda: len(answers) == 4, 20)
    assert (answers[3].kind, answers[3].why) == ("refused", "too long")
    thread = next(thread for thread in threading.enumerate() if thread.name == "meshrt-code")
    server.close()
    thread.join(20)
    assert not thread.is_alive()
