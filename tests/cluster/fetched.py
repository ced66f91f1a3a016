"""A script with modules of its own, which the machines of its hosts do not have; tests write it to a directory."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write"]

FILES = {
    "script.py": '''
import importlib.util
import json
import os
import signal
import sys
import traceback
from pathlib import Path

sys.path.insert(0, os.environ["CHECKOUT"])  # what a .pth file of an editable installation does
import helper
from meshrt import Actor, MeshError, endpoint, proc_mesh
from meshrt.engine.command import CommandEngine


class Mapped:
    """What setuptools installs for an editable package."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "mapped":
            file = Path(__file__).with_name("elsewhere") / "mapped" / "__init__.py"
            return importlib.util.spec_from_file_location(fullname, file)


sys.meta_path.append(Mapped)


def twice(value):
    return 2 * value


class Worker(Actor):
    @endpoint
    def use(self):
        """What is imported in a rank."""
        import importlib.resources
        import pkgutil

        import checked_out
        import mapped.inner
        import pkg.deep
        import space.inner

        files = importlib.resources.files("pkg") / "data"
        return [
            helper.where(),
            checked_out.NAME,
            mapped.inner.NAME,
            pkg.deep.NAME,
            pkg.deep.__file__,
            space.inner.NAME,
            files.joinpath("table.txt").read_text(),
            sorted(each.name for each in files.iterdir()),
            pkgutil.get_data("pkg", "data/table.txt").decode(),
            twice(21),
            os.path.exists(pkg.deep.__file__),
        ]

    @endpoint
    def missing(self, name):
        found = importlib.util.find_spec(name)
        try:
            __import__(name)
        except ImportError as error:
            return f"{found is None} {type(error).__name__}: {error}"
        return "imported"

    @endpoint
    def fails(self):
        helper.fails()

    @endpoint
    def text_of_failure(self):
        try:
            helper.fails()
        except ValueError:
            return traceback.format_exc()

    @endpoint
    def stops(self):
        return helper.stops(3)

    @endpoint
    def forked(self):
        """What a fork of a rank imports."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                import pkg.lonely

                os.write(writing, pkg.lonely.NAME.encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return os.read(reading, 100).decode()

    @endpoint
    def late(self):
        import pkg.late

        return pkg.late.NAME

    @endpoint
    def plain(self):
        return helper.plain(3)

    @endpoint
    def own(self):
        raise KeyError("in the script")  # @own


class Late(helper.Base):
    pass


def main():
    hosts = json.loads(os.environ["AGENTS"])
    options = json.loads(os.environ.get("ENGINE", "{}"))
    engine = CommandEngine(tuple(hosts), tuple(map(tuple, hosts.values())), **options)
    what = sys.argv[1]
    try:
        with proc_mesh(hosts=2, gpus=2, engine=engine, preload=["pkg.deep"] if what == "preload" else ()) as mesh:
            workers = mesh.spawn("worker", Worker)
            if what == "preload":
                print(set(mesh.spawn("late", Late).loaded.call("pkg.deep").get(60).values()))
            elif what == "use":
                for line in workers.use.call().get(60).item(hosts=1, gpus=1):
                    print(line)
                print(set(mesh.spawn("late", Late).say.call().get(60).values()))
                one = workers.slice(hosts=0, gpus=0)
                print(one.missing.call_one("nothing_has_this").get(60))
                print(one.missing.call_one("pkg.nothing").get(60))
                print(one.missing.call_one("compiled").get(60))
            elif what == "fail":
                print(workers.slice(hosts=0, gpus=0).text_of_failure.call_one().get(60))
                try:
                    workers.slice(hosts=0, gpus=0).own.call_one().get(60)
                except MeshError as error:
                    print(error)
                workers.slice(hosts=0, gpus=0).fails.call_one().get(60)
            elif what == "fork":
                print(set(workers.forked.call().get(60).values()))
            elif what == "change":
                print(set(workers.late.call().get(60).values()))
                Path(__file__).with_name("pkg").joinpath("late.py").write_text("NAME = 'changed'\\n")
                print(set(workers.late.call().get(60).values()))
                with proc_mesh(hosts=2, gpus=1, engine=engine) as other:
                    print(set(other.spawn("other", Worker).late.call().get(60).values()))
            elif what == "busy":
                workers.plain.call().get(60)
                call = workers.late.call()
                os.kill(os.getpid(), signal.SIGSTOP)
                print(set(call.get(60).values()))
            elif what == "ide":
                print(os.getpid(), flush=True)
                input()
                print("values", workers.plain.call().get(100).values())
                sys.stdin.read()  # a rank that has ended does not answer the request that let it go on
            elif what == "stop":
                print("values", workers.stops.call().get(100).values())
    except MeshError as error:
        if what != "join":
            raise
        print(type(error).__name__, error)


main()
''',
    "helper.py": """
import socket
import sys

from meshrt import Actor, endpoint


class Base(Actor):
    @endpoint
    def say(self):
        return "from a base class"

    @endpoint
    def loaded(self, name):
        return name in sys.modules


def where():
    return socket.gethostname()


def fails():
    raise ValueError("of a helper")  # @fails


def plain(value):
    return 2 * value  # @plain


def stops(value):
    more = value + 1
    breakpoint()
    return more  # @stopped
""",
    "pkg/__init__.py": "",
    "pkg/deep.py": "from . import near\nNAME = 'deep and ' + near.NAME\n",
    "pkg/near.py": "NAME = 'near'\n",
    "pkg/lonely.py": "NAME = 'lonely'\n",
    "pkg/late.py": "NAME = 'late'\n",
    "pkg/data/table.txt": "a table",
    "space/inner.py": "NAME = 'in a namespace'\n",
    "checkout/checked_out.py": "NAME = 'editable'\n",
    "elsewhere/mapped/__init__.py": "",
    "elsewhere/mapped/inner.py": "NAME = 'mapped'\n",
    "compiled.abi3.so": "no code",
}


def write(directory: Path) -> Path:
    """Write all of it; returns the script."""
    for name, text in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory / "script.py"
