"""The floors of the design, and what code in ``meshrt/`` never does; checked on the syntax trees.

A module imports only from the rows above its own, at module level, inside a function and under ``TYPE_CHECKING`` alike.
A rule is a function from a `Source` to its `Finding`s, so each one is also tried here on small sources that break it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.support.sources import ROOT, Finding, Source, read_sources

__all__: list[str] = []

#: Top row first. A row may hold several packages: they do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("files", "escapes", "ranks", "conversion", "origins"),
    ("errors", "uncaught"),
    ("selection",),
    ("show", "hooks"),
    ("commandline",),
    ("wire",),
    ("transport",),
    ("store",),
    ("host",),
    ("actor",),
    ("mesh",),
    ("engine",),
    ("program",),
    ("collectives",),
    ("inspect",),
    ("memory",),
    ("failure", "timeline", "top", "faults"),
    ("spmd",),
    ("debug",),
    ("testing",),
    ("pytest_plugin",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
ROW = {package: row for row, packages in enumerate(LAYERS) for package in packages}

#: The public facade: it names every package, by dotted string or under TYPE_CHECKING, and stands outside the floors.
FACADE = "meshrt/__init__.py"
#: Typed against what plug-ins will see, so its TYPE_CHECKING imports may go in any direction.
SERVICES = "meshrt/hooks/services.py"
#: What runs a script as Python does.
LAUNCHED = "meshrt/engine/launch/script.py"
#: What loads plug-ins, by dotted name.
PLUGINS = "meshrt/hooks/plugins.py"
#: Where the commands are; those of the debugger import it.
COMMANDS = "commands"
#: Who may write the debugger's dotted name (to load it on first use); only commands may import it.
NAMES_DEBUGGER = (FACADE, PLUGINS, "meshrt/commandline/shell.py")
#: The only places that may turn bytes into objects.
CODECS = ("meshrt/wire/codec.py",)
#: The only module that writes files.
WRITER = "meshrt/transport/writing.py"
#: The only module that lays out tables, and the one that writes what programs read.
TABLES, RECORDS = "meshrt/show/table.py", "meshrt/show/records.py"
#: Who else makes JSON: messages and settings of IDEs, what a program publishes of itself, a key to compare by.
OTHER_JSON = ("meshrt/debug/dap/", "meshrt/transport/tools.py", "meshrt/memory/document.py")
#: The only folder that may know names of the engine of IDEs.
ENGINE = "meshrt/debug/dap/engine/"
OBJECT_CODECS = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}

MAX_LINES = 700
REASON = re.compile(r"#.*\b(optional|start-up):")

#: None of these may be loaded by a bare ``import meshrt``.
HEAVY = ("asyncio", "bdb", "cloudpickle", "meshrt.debug", "pdb", "prompt_toolkit", "psutil", "tabulate", "uvloop")


# ---- reading sources -------------------------------------------------------------------------------------------------


def _texts(tree: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    """The string constants of a module, the fixed parts of f-strings among them; its documentation is left out."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node, node.value


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


RUNTIME = read_sources("meshrt")
PROJECT = RUNTIME + read_sources("tests", "examples", "bench")

Rule = Callable[[Source], Iterator[Finding]]


def check(rule: Rule, sources: list[Source] = RUNTIME) -> None:
    """Fail with one line for each place that breaks ``rule``."""
    findings = [finding for source in sources for finding in rule(source)]
    if findings:
        pytest.fail("\n".join(["", *map(str, findings)]), pytrace=False)


# ---- the rules -------------------------------------------------------------------------------------------------------


def imports_go_up(source: Source) -> Iterator[Finding]:
    """Imports name rows above, or the module's own package."""
    if source.path == FACADE:
        return
    if source.package not in ROW:
        yield Finding(source.path, 1, f"meshrt.{source.package} has no row; decide which floor it is on (LAYERS)")
        return
    own = ROW[source.package]
    for imported in source.imports:
        if not _within(imported.name, "meshrt") or imported.name == "meshrt.__version__":
            continue
        if imported.type_checking and source.path == SERVICES:
            continue
        target = imported.name.removeprefix("meshrt").removeprefix(".").split(".")[0]
        if target not in ROW:
            yield source.finding(imported.node, f"imports {imported.name} from the facade; name its own module")
        elif target != source.package and ROW[target] >= own:
            where = "beside" if ROW[target] == own else "below"
            yield source.finding(
                imported.node, f"imports {imported.name}; meshrt.{target} is {where} meshrt.{source.package}"
            )


def function_imports_say_why(source: Source) -> Iterator[Finding]:
    """An import inside a function has a comment ``# optional: ...`` or ``# start-up: ...`` on its line or above it."""
    for imported in source.imports:
        if not imported.in_function or not isinstance(imported.node, ast.Import | ast.ImportFrom):
            continue
        first, last = imported.node.lineno, imported.node.end_lineno or imported.node.lineno
        above = source.lines[first - 2].strip() if first > 1 else ""
        if not any(map(REASON.search, source.lines[first - 1 : last])) and not REASON.match(above):
            yield source.finding(
                imported.node, f"imports {imported.name} inside a function without '# optional:' or '# start-up:'"
            )


def debugger_is_not_imported(source: Source) -> Iterator[Finding]:
    """Outside ``meshrt/debug`` the debugger is a dotted string, and only the places that load plug-ins hold it."""
    if source.package in ("debug", COMMANDS) or source.path == FACADE:
        return
    for imported in source.imports:
        if _within(imported.name, "meshrt.debug"):
            yield source.finding(imported.node, f"imports {imported.name}; the debugger is a plug-in")
    if source.path.startswith(NAMES_DEBUGGER):
        return
    for node, text in _texts(source.tree):
        if re.fullmatch(r"meshrt\.debug(\.\w+)*(:\w+)?", text):
            yield source.finding(node, f"holds the dotted name {text!r}; only {PLUGINS} loads plug-ins")


def objects_are_decoded_in_the_codec(source: Source) -> Iterator[Finding]:
    """Nothing but the codec can unpickle, so nothing on the control plane ever is."""
    if source.path in CODECS:
        return
    for imported in source.imports:
        if imported.name.split(".")[0] in OBJECT_CODECS:
            yield source.finding(imported.node, f"imports {imported.name}; only {', '.join(CODECS)} may")


def engine_is_known_in_its_folder(source: Source) -> Iterator[Finding]:
    """Names of debugpy's engine are private and may change: there is one place to look."""
    if source.path.startswith(ENGINE):
        return
    for constant, text in _texts(source.tree):
        if re.fullmatch(r"_?pydevd?(_\w+)*(\.\w+)*|debugpy(\.\w+)+", text):
            yield source.finding(constant, f"holds the name {text!r}; only {ENGINE} may")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if "pydevd" in name:
                yield source.finding(node, f"uses {name}; only {ENGINE} may")


def no_eval(source: Source) -> Iterator[Finding]:
    """Text becomes code in the debugger only, where a person typed it; and a script does that a user has launched."""
    if source.package == "debug" or source.path == LAUNCHED:
        return
    for node in ast.walk(source.tree):
        name = ""
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "builtins":
            name = node.attr
        if name in ("eval", "exec"):
            yield source.finding(node, f"uses {name}()")


def no_assert(source: Source) -> Iterator[Finding]:
    """``python -O`` removes assertions, so they guard nothing."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert):
            yield source.finding(node, "asserts; raise an error that says what was expected")


def no_wall_clock(source: Source) -> Iterator[Finding]:
    """A clock that can be set back measures nothing."""
    names = {imported.alias for imported in source.imports if imported.name == "time"}
    advice = "durations: time.monotonic(); stamps of records: time.time_ns()"
    for imported in source.imports:
        if imported.name == "time.time":
            yield source.finding(imported.node, f"imports time.time; {advice}")
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="time") if name in names:
                yield source.finding(node, f"uses time.time(); {advice}")


def no_shell(source: Source) -> Iterator[Finding]:
    """Arguments are lists; no string is ever parsed by a shell."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "shell" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    yield source.finding(node, "passes shell=")
            match node.func:
                case ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen" as name):
                    yield source.finding(node, f"calls os.{name}()")


def no_signal_looks(source: Source) -> Iterator[Finding]:
    """A pid may be another process's by now, of another user: whether a process lives, a pidfd or /proc says."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os"), attr="kill" | "killpg"), args=[_, ast.Constant(0)]
            ):
                yield source.finding(node, "sends signal 0 to a pid")


def files_are_written_in_one_place(source: Source) -> Iterator[Finding]:
    """What is written by another way could be written through a link of another user, or be seen half written."""
    if source.path == WRITER:
        return
    nodes = list(ast.walk(source.tree))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    allowed = {flag for call in calls if ast.unparse(call.func) == "open_private" for flag in ast.walk(call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("O_CREAT", "O_TRUNC") and node not in allowed:
            yield source.finding(node, f"makes a file; only {WRITER} may")
        if not isinstance(node, ast.Call):
            continue
        first = ast.unparse(node.args[0]) if node.args else ""
        match node.func:
            case ast.Name(id="open") if first != "os.devnull" and _WRITES.search(_mode_of(node)):
                yield source.finding(node, f"opens a file to write; only {WRITER} may")
            case ast.Attribute(attr="write_text" | "write_bytes" | "mkstemp" | "NamedTemporaryFile" as name):
                yield source.finding(node, f"calls {name}(); only {WRITER} may")


_WRITES = re.compile(r"[wax+]")


def _mode_of(node: ast.Call) -> str:
    modes = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    return "".join(str(mode.value) if isinstance(mode, ast.Constant) else "w" for mode in modes)


def is_shown_in_one_way(source: Source) -> Iterator[Finding]:
    """Tables are laid out by one module, and documents written by one: without NaN, with their schema."""
    if source.path != TABLES:
        for imported in source.imports:
            if _within(imported.name, "tabulate"):
                yield source.finding(imported.node, f"lays out a table; only {TABLES} may")
    if source.path == RECORDS or source.path.startswith(OTHER_JSON):
        return
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="json"), attr="dump" | "dumps" as name):
                yield source.finding(node, f"calls json.{name}(); only {RECORDS} may")


def no_open_interface(source: Source) -> Iterator[Finding]:
    """A socket is bound to one explicit address."""
    for constant, text in _texts(source.tree):
        if "0.0.0.0" in text:
            yield source.finding(constant, "names the address of all interfaces; to refuse it, ask is_unspecified")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr == "INADDR_ANY":
            yield source.finding(node, "names the address of all interfaces")


def is_short(source: Source) -> Iterator[Finding]:
    """Above 700 lines a file is several things."""
    if len(source.lines) > MAX_LINES:
        yield Finding(source.path, MAX_LINES + 1, f"has {len(source.lines)} lines, more than {MAX_LINES}; split it")


def has_all(source: Source) -> Iterator[Finding]:
    """Every module says what it offers, in a literal that tools can read."""
    if source.path.endswith("__main__.py"):
        return
    for node in source.tree.body:
        value: ast.expr | None
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=value):
                pass
            case _:
                continue
        names = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        texts = [name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)]
        if len(texts) != len(names):
            yield source.finding(node, "has an __all__ that is no plain list of strings")
        elif len(set(texts)) != len(texts):
            yield source.finding(node, "names something twice in __all__")
        return
    yield Finding(source.path, 1, "has no __all__")


# ---- the project obeys them ------------------------------------------------------------------------------------------


def test_there_are_sources() -> None:
    paths = {source.path for source in RUNTIME}
    assert {FACADE, SERVICES, PLUGINS, *CODECS} <= paths


@pytest.mark.slow
def test_imports_go_up() -> None:
    check(imports_go_up)


def test_function_imports_say_why() -> None:
    check(function_imports_say_why)


def test_debugger_is_not_imported() -> None:
    check(debugger_is_not_imported)


def test_objects_are_decoded_in_the_codec() -> None:
    check(objects_are_decoded_in_the_codec)


@pytest.mark.slow
def test_the_engine_is_known_in_its_folder() -> None:
    check(engine_is_known_in_its_folder)


def test_no_eval_outside_the_debugger() -> None:
    check(no_eval)


def test_no_assert() -> None:
    check(no_assert)


@pytest.mark.row("N11")
def test_no_wall_clock() -> None:
    check(no_wall_clock)


def test_no_shell() -> None:
    check(no_shell)


def test_no_signal_asks_whether_a_process_lives() -> None:
    check(no_signal_looks)


@pytest.mark.slow
def test_files_are_written_in_one_place() -> None:
    check(files_are_written_in_one_place)


def test_what_is_shown_is_made_in_one_place() -> None:
    check(is_shown_in_one_way)


@pytest.mark.slow
def test_no_open_interface() -> None:
    check(no_open_interface)


def test_files_are_short() -> None:
    check(is_short, PROJECT)


def test_every_module_has_all() -> None:
    check(has_all)


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter loads for ``statement``."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    if result.returncode:
        pytest.fail(f"{statement!r} failed:\n{result.stderr}", pytrace=False)
    return set(result.stdout.split())


def heavy(modules: set[str]) -> list[str]:
    return [name for name in HEAVY if any(_within(module, name) for module in modules)]


def test_import_is_light() -> None:
    modules = loaded_by("import meshrt")
    assert "meshrt" in modules
    assert not heavy(modules), f"`import meshrt` loads {', '.join(heavy(modules))}"


def test_a_heavy_import_is_seen() -> None:
    assert heavy(loaded_by("import meshrt, pdb, asyncio")) == ["asyncio", "bdb", "pdb"]


# ---- each rule can fail ----------------------------------------------------------------------------------------------

CASES: list[tuple[Rule, str, str, list[int]]] = [
    (imports_go_up, "meshrt/wire/a.py", "import os\nfrom meshrt.errors import MeshError\nfrom meshrt import hooks", []),
    (imports_go_up, "meshrt/wire/a.py", "from meshrt.wire.b import x\nfrom . import b\nfrom .b import x", []),
    (imports_go_up, "meshrt/wire/a.py", "import meshrt.mesh.future", [1]),
    (imports_go_up, "meshrt/wire/a.py", "\nfrom meshrt.host import agent", [2]),
    (imports_go_up, "meshrt/wire/a.py", "from ..store import arena", [1]),
    (imports_go_up, "meshrt/wire/a/__init__.py", "from ...store import arena", [1]),
    (imports_go_up, "meshrt/wire/__init__.py", "from .. import host, errors", [1]),
    (imports_go_up, "meshrt/transport/a.py", "from meshrt.store import arena", [1]),
    (imports_go_up, "meshrt/errors.py", "from meshrt.hooks.table import hooks", [1]),
    (imports_go_up, "meshrt/wire/a.py", "def f():\n    from meshrt.mesh import Future  # start-up: large", [2]),
    (imports_go_up, "meshrt/wire/a.py", "async def f():\n    if 1:\n        import meshrt.mesh", [3]),
    (imports_go_up, "meshrt/wire/a.py", "if TYPE_CHECKING:\n    from meshrt.mesh import Future", [2]),
    (imports_go_up, "meshrt/wire/a.py", "if not x:\n    pass\nelse:\n    from meshrt.mesh import Future", [4]),
    (imports_go_up, "meshrt/wire/a.py", "import importlib\nimportlib.import_module('meshrt.mesh')", [2]),
    (imports_go_up, "meshrt/wire/a.py", "__import__('meshrt.mesh')", [1]),
    (imports_go_up, "meshrt/cli/a.py", "from meshrt import Actor", [1]),
    (imports_go_up, "meshrt/cli/a.py", "import meshrt", [1]),
    (imports_go_up, "meshrt/cli/a.py", "from meshrt import __version__", []),
    (imports_go_up, "meshrt/cli/a.py", "import meshrt_extra, wire", []),
    (imports_go_up, SERVICES, "if TYPE_CHECKING:\n    from meshrt.mesh import Future", []),
    (imports_go_up, SERVICES, "if typing.TYPE_CHECKING:\n    pass\nelse:\n    import meshrt.mesh", [4]),
    (imports_go_up, SERVICES, "import meshrt.mesh", [1]),
    (imports_go_up, "meshrt/surprise.py", "", [1]),
    (imports_go_up, "meshrt/surprise/a.py", "", [1]),
    (imports_go_up, "meshrt/__init__.py", "from meshrt.mesh import Future", []),
    (function_imports_say_why, "meshrt/wire/a.py", "import os\nif os:\n    import re", []),
    (function_imports_say_why, "meshrt/wire/a.py", "def f():\n    import re", [2]),
    (function_imports_say_why, "meshrt/wire/a.py", "def f():\n    import re  # start-up: 3 ms", []),
    (function_imports_say_why, "meshrt/wire/a.py", "def f():\n    # optional: only with numpy\n    import numpy", []),
    (function_imports_say_why, "meshrt/wire/a.py", "def f():\n    from re import (\n        a,  # optional: b\n)", []),
    (function_imports_say_why, "meshrt/wire/a.py", "class A:\n    async def f():\n        import re  # why", [3]),
    (debugger_is_not_imported, "meshrt/mesh/a.py", "import meshrt.debug", [1]),
    (debugger_is_not_imported, "meshrt/cli/a.py", "from meshrt.debug.prompt.repl import main", [1]),
    (debugger_is_not_imported, "meshrt/cli/a.py", "from meshrt import debug", [1]),
    (debugger_is_not_imported, "meshrt/cli/a.py", "from .. import debug", [1]),
    (debugger_is_not_imported, PLUGINS, "if TYPE_CHECKING:\n    import meshrt.debug.rank", [2]),
    (debugger_is_not_imported, "meshrt/mesh/a.py", "x = 'meshrt.debug.rank'", [1]),
    (debugger_is_not_imported, "meshrt/mesh/a.py", "'run python -m meshrt.debug'", []),
    (debugger_is_not_imported, PLUGINS, "x = 'meshrt.debug.rank'", []),
    (debugger_is_not_imported, "meshrt/debug/a.py", "from meshrt.debug import rank", []),
    (debugger_is_not_imported, "meshrt/commands/a.py", "from meshrt.debug import prompt", []),
    (objects_are_decoded_in_the_codec, "meshrt/wire/a.py", "import pickle", [1]),
    (objects_are_decoded_in_the_codec, "meshrt/wire/a.py", "from cloudpickle.cloudpickle import dumps", [1]),
    (objects_are_decoded_in_the_codec, "meshrt/debug/a.py", "def f():\n    import marshal", [2]),
    (objects_are_decoded_in_the_codec, "meshrt/wire/codec.py", "import pickle", []),
    (objects_are_decoded_in_the_codec, "meshrt/wire/a.py", "import picklejar", []),
    (engine_is_known_in_its_folder, "meshrt/debug/dap/rank/a.py", "load('_pydevd_bundle.pydevd_api')", [1]),
    (engine_is_known_in_its_folder, "meshrt/debug/dap/rank/a.py", "x = 1\nself.pydevd.stop()", [2]),
    (engine_is_known_in_its_folder, "meshrt/debug/dap/rank/a.py", "load('debugpy._vendored')", [1]),
    (engine_is_known_in_its_folder, "meshrt/debug/dap/router/a.py", "'''Of pydevd.'''\nkind = 'debugpy'", []),
    (engine_is_known_in_its_folder, "meshrt/debug/dap/engine/a.py", "load('pydevd')", []),
    (no_eval, "meshrt/wire/a.py", "x = 1\neval('x')", [2]),
    (no_eval, "meshrt/wire/a.py", "import builtins\nrun = builtins.exec", [2]),
    (no_eval, "meshrt/wire/a.py", "model.eval()\ndef evaluate(): pass", []),
    (no_eval, "meshrt/debug/a.py", "eval('1')", []),
    (no_assert, "meshrt/wire/a.py", "def f(x):\n    assert x", [2]),
    (no_assert, "meshrt/wire/a.py", "'assert x'", []),
    (no_wall_clock, "meshrt/wire/a.py", "import time\ntime.time()", [2]),
    (no_wall_clock, "meshrt/wire/a.py", "import time as t\nnow = t.time", [2]),
    (no_wall_clock, "meshrt/wire/a.py", "from time import time", [1]),
    (no_wall_clock, "meshrt/wire/a.py", "import time\ntime.time_ns(); time.monotonic(); loop.time()", []),
    (no_shell, "meshrt/wire/a.py", "subprocess.run('x', shell=True)", [1]),
    (no_shell, "meshrt/wire/a.py", "subprocess.run('x', shell=maybe)", [1]),
    (no_shell, "meshrt/wire/a.py", "os.system('x')", [1]),
    (no_shell, "meshrt/wire/a.py", "subprocess.run(['x'], shell=False)", []),
    (no_signal_looks, "meshrt/wire/a.py", "os.kill(pid, 0)\nos.killpg(group, 0)", [1, 2]),
    (no_signal_looks, "meshrt/wire/a.py", "os.kill(pid, signal.SIGKILL)", []),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "open(path)\nopen(path, 'w')", [2]),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "with open(path, mode='rb+'): pass", [1]),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "open(path, 'rb'); open(os.devnull, 'w')", []),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "os.open(p, os.O_WRONLY | os.O_CREAT, 0o600)", [1]),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "flags = os.O_CREAT | os.O_RDWR\nos.open(p, flags)", [1]),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "open_private(p, os.O_WRONLY | os.O_CREAT)", []),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "os.open(p, os.O_TMPFILE | os.O_RDWR); os.open(p, 0)", []),
    (files_are_written_in_one_place, "meshrt/wire/a.py", "path.write_text('x')\ntempfile.mkstemp()", [1, 2]),
    (files_are_written_in_one_place, "meshrt/transport/writing.py", "os.open(p, os.O_CREAT)", []),
    (is_shown_in_one_way, "meshrt/top/a.py", "def f():\n    from tabulate import tabulate  # start-up: large", [2]),
    (is_shown_in_one_way, "meshrt/top/a.py", "import json\njson.loads(x)\nprint(json.dumps(x))", [3]),
    (is_shown_in_one_way, "meshrt/debug/dap/a.py", "import json\njson.dumps(x)", []),
    (is_shown_in_one_way, TABLES, "from tabulate import tabulate", []),
    (is_shown_in_one_way, RECORDS, "import json\njson.dumps(x)", []),
    (no_open_interface, "meshrt/wire/a.py", "HOST = '0.0.0.0'", [1]),
    (no_open_interface, "meshrt/wire/a.py", "f'tcp://0.0.0.0:{port}'", [1]),
    (no_open_interface, "meshrt/wire/a.py", "socket.INADDR_ANY", [1]),
    (no_open_interface, "meshrt/wire/a.py", "'''Refuses 0.0.0.0.'''\nHOST = '127.0.0.1'", []),
    (is_short, "meshrt/wire/a.py", "x = 1\n" * 701, [701]),
    (is_short, "meshrt/wire/a.py", "x = 1\n" * 700, []),
    (has_all, "meshrt/wire/a.py", "x = 1", [1]),
    (has_all, "meshrt/wire/a.py", "x = 1\n__all__ = ['x', 'x']", [2]),
    (has_all, "meshrt/wire/a.py", "__all__ = list(names)", [1]),
    (has_all, "meshrt/wire/a.py", "__all__ = [x]", [1]),
    (has_all, "meshrt/wire/a.py", "__all__: list[str] = []", []),
    (has_all, "meshrt/wire/a.py", "__all__ = ('x',)", []),
    (has_all, "meshrt/wire/__main__.py", "", []),
]


@pytest.mark.parametrize(("rule", "path", "text", "lines"), CASES)
def test_the_rule_sees(rule: Rule, path: str, text: str, lines: list[int]) -> None:
    findings = list(rule(Source(path, text)))
    assert [finding.line for finding in findings] == lines, [str(finding) for finding in findings]
    assert all(str(finding).startswith(f"{path}:{finding.line}: ") for finding in findings)


def test_check_fails_with_file_and_line() -> None:
    with pytest.raises(pytest.fail.Exception, match=re.escape("meshrt/wire/a.py:1: asserts")):
        check(no_assert, [Source("meshrt/wire/a.py", "assert 1")])


def test_every_rule_is_tried() -> None:
    rules = {rule for rule, _, _, lines in CASES if lines}
    signature = no_assert.__annotations__
    assert rules == {value for value in globals().values() if getattr(value, "__annotations__", None) == signature}
