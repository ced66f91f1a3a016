"""Another user of the machine, against all that a running program and its commands have open.

What there is is looked up in the kernel's tables (descriptors, unix sockets, ports), so that a socket that is new here
fails until it is known, and tried. The other user is uid 65534; without root's rights there is none.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from meshrt.debug.dap.wire import encode
from meshrt.wire.handshake import ROLE_DATA, ROLE_STORE, ROLE_TOOL, ClientHandshake
from tests.faults.watch import LONG, Program, descendants
from tests.support.others import give_to_nobody, needs_root, run_as_nobody
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

SECONDS = 60.0
#: What may listen, by the end of its path, and what it is.
KNOWN_SOCKETS = {
    r"/r/p-[0-9a-f]{8}/tools": "terminals",
    r"/r/p-[0-9a-f]{8}/[0-9a-f]{8}\.\d+": "a rank, or an actor of the script",
    r"/r/p-[0-9a-f]{8}/store\.\d+": "the store of a host",
    r"/dap\.sock": "meshrt dap --socket",
}
#: ... and where debugpy is installed.
WITH_ENGINE = {r"/r/p-[0-9a-f]{8}/dap-\d+": "meshrt dap --stdio, while an IDE is attached"}
ENGINE = importlib.util.find_spec("debugpy") is not None
#: A program that has one of everything.
SCRIPT = """
import numpy as np
from meshrt import this_proc
mesh = proc_mesh(n=2)
victims = mesh.spawn("victim", Victim).get(20)
own = this_proc().spawn("own", Victim).get(20)
victims.apply.call(print, "a line of output").get(20)
held = victims.apply.call(np.copy, np.ones(1 << 18)).get(20)
spilled = put(np.ones(1 << 18), spill=True)
try:
    victims.apply.call(int, "no number").get(20)
except ValueError:
    pass
proc_mesh(n=1).spawn("more", Victim).apply.call(Victim.__name__.join, victims and []).get(20)
tell(up=True)
signal.pause()
"""

#: Tries everything with each path, and says what has worked.
ATTACK = """
import json, os, socket, sys
def tries(path):
    yield "read", lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    yield "write", lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    yield "append", lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK))
    yield "list", lambda: os.listdir(path)
    yield "make", lambda: os.mkdir(path + "/theirs")
    yield "plant", lambda: os.symlink("/", path + "/link")
    yield "chmod", lambda: os.chmod(path, 0o777)
    yield "touch", lambda: os.utime(path)
    yield "link", lambda: os.link(path, sys.argv[1] + "/theirs")
    yield "rename", lambda: os.rename(path, path + ".theirs")
    yield "replace", lambda: os.rename(sys.argv[1] + "/bait", path)
    yield "unlink", lambda: os.unlink(path)
    yield "rmdir", lambda: os.rmdir(path)
done = []
for path in json.loads(sys.argv[2]):
    open(sys.argv[1] + "/bait", "w").close()
    for name, action in tries(path):
        try:
            action()
        except OSError:
            continue
        done.append([name, path])
    os.unlink(sys.argv[1] + "/bait")
print(json.dumps(done))
"""
CONNECT = """
import json, socket, sys
answers = []
for path, hello in json.loads(sys.argv[1]):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        try:
            sock.connect(path)
            sock.sendall(bytes.fromhex(hello))
            answers.append(repr(sock.recv(100)))
        except OSError as error:
            answers.append(type(error).__name__)
print(json.dumps(answers))
"""
PEEK = """
import json, os, sys
seen = []
for pid in json.loads(sys.argv[1]):
    for name in ("environ", "mem", "maps", "stack", "io", "syscall"):
        try:
            if open(f"/proc/{pid}/{name}", "rb").read(1): seen.append([pid, name])
        except OSError:
            pass
    for name in ("fd", "map_files", "cwd/", "root/proc/self"):
        try:
            seen.append([pid, name, os.listdir(f"/proc/{pid}/{name}")])
        except OSError:
            pass
    try:
        os.kill(pid, 0)
        seen.append([pid, "kill"])
    except OSError:
        pass
print(json.dumps(seen))
"""
GET = """
import http.client, json, sys
answers = []
for method, path, headers in json.loads(sys.argv[2]):
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answers.append([answer.status, answer.read().decode()])
print(json.dumps(answers))
"""


@dataclass
class Running:
    """The program, and commands that serve."""

    shared: Path
    program: Program
    commands: list[subprocess.Popen[str]] = field(default_factory=list)
    #: The port of ``meshrt top --serve``, and its address; 0: it is not installed.
    port: int = 0
    address: str = ""

    def pids(self) -> list[int]:
        first = [self.program.pid, *(command.pid for command in self.commands)]
        return [*first, *(pid for parent in first for pid in descendants(parent))]

    def paths(self) -> list[str]:
        """All that is there, in the order of a walk."""
        return [str(path) for path in sorted(self.shared.rglob("*"))]


def served(*arguments: str, env: dict[str, str]) -> tuple[subprocess.Popen[str], str]:
    """A command that serves until it is ended, and the first line that it prints."""
    command = subprocess.Popen(
        [sys.executable, "-m", "meshrt", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    assert command.stdout is not None
    return command, command.stdout.readline()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """In a directory for temporary files that everybody can write to, as ``/tmp`` is."""
    needs_root()
    shared = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
    shared.chmod(0o1777)
    places = {"MESHRT_RUNTIME_DIR": "r", "MESHRT_RUNS": "runs", "TMPDIR": "", "XDG_STATE_HOME": "state"}
    env = {name: str(shared / place) for name, place in places.items()} | {"MESHRT_POST_MORTEM": "dump"}
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, shared)
        # The agent removes it, and may do so while the program's end is noticed here.
        stack.callback(wait_until, lambda: not [*shared.glob("r/p-*")], SECONDS, "the program's directory is removed")
        before = os.umask(0)  # files are private whatever it is
        try:
            program = stack.enter_context(Program(SCRIPT, tmp_path_factory.mktemp("program"), env=env))
        finally:
            os.umask(before)
        program.told("up", SECONDS)
        run = str(program.pid)
        found = Running(shared, program)
        stack.callback(end, found.commands)
        whole = environment(**env)
        dap, line = served("dap", run, "--socket", str(shared / "dap.sock"), env=whole)
        found.commands.append(dap)
        assert "dap.sock" in line
        if ENGINE:
            found.commands.append(attached(run, whole))
            wait_until(lambda: [*shared.glob("r/*/dap-*")], SECONDS, "an IDE is attached")
        for words in (("memory", run, "--save", str(shared / "memory")), ("timeline", str(shared / "timeline"), run)):
            more = ["--seconds", "0.1"] if words[0] == "timeline" else []
            assert run_python("-m", "meshrt", *words, *more, env=whole).returncode == 0
        with contextlib.suppress(ImportError):
            import textual_serve  # noqa: F401 - an extra

            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                found.port = probe.getsockname()[1]
            top, found.address = served("top", run, "--serve", "--port", str(found.port), env=whole)
            found.commands.append(top)
        yield found


def attached(run: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """The adapter of an IDE that has attached to all ranks, and says nothing more."""
    command = [sys.executable, "-m", "meshrt", "dap", "--stdio", run]
    adapter = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    assert adapter.stdin is not None
    requests = {"initialize": {"adapterID": "debugpy", "clientID": "test"}, "attach": {"request": "attach"}}
    for number, (name, arguments) in enumerate(requests.items(), 1):
        message = {"seq": number, "type": "request", "command": name, "arguments": arguments}
        adapter.stdin.write(encode(message).decode())
    adapter.stdin.flush()
    return adapter


def hello(path: str) -> list[str]:
    """A path, and what is answered there at once if it comes from a process of this user."""
    name = Path(path).name
    if name.startswith("dap"):
        first = encode({"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "debugpy"}})
    elif name == "tools":
        first = ClientHandshake(bytes(32), ROLE_TOOL, "tools").hello()
    elif name.startswith("store."):
        first = ClientHandshake(bytes(32), ROLE_STORE, "store").hello()
    else:
        first = ClientHandshake(bytes(32), ROLE_DATA, f"{name.replace('.', '/')}/victim").hello()
    return [path, first.hex()]


def end(commands: list[subprocess.Popen[str]]) -> None:
    for command in commands:
        with command:
            command.send_signal(signal.SIGINT)


def sockets_of(pids: list[int]) -> set[int]:
    """The numbers of all sockets that processes have open."""
    found = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{entry}"))
                    found.update([int(match[1])] if match else [])
    return found


def unix_sockets() -> dict[int, str]:
    """All unix sockets by number, with the path or ""; an abstract one begins with @."""
    rows = (line.split(maxsplit=7) for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return {int(row[6]): row[7] if len(row) > 7 else "" for row in rows}


def ports() -> dict[int, int]:
    """All ports that are listened at, on the loopback interface or not, by the number of the socket."""
    rows = (
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    )
    return {int(row[9]): int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def connections() -> set[int]:
    rows = (
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    )
    return {int(row[9]) for row in rows if row[3] != "0A"}


def listening(running: Running) -> list[str]:
    """The paths of this program's sockets; fails where one is not known."""
    unix = unix_sockets()
    paths = {unix[number] for number in sockets_of(running.pids()) if unix.get(number)}
    for path in paths:
        assert path.startswith(str(running.shared)), f"a socket that is not known: {path!r}"
        end = path.removeprefix(str(running.shared))
        assert any(re.fullmatch(pattern, end) for pattern in (*KNOWN_SOCKETS, *WITH_ENGINE)), (
            f"a socket that is not known: {path!r}"
        )
    return sorted(paths)


@pytest.mark.row("D5")
def test_every_socket_is_known(running: Running) -> None:
    """One that is new has to be named here, and be refused to others below; a port, too."""
    unix, inet, listened = unix_sockets(), connections(), ports()
    open_ports = set()
    for number in sockets_of(running.pids()):
        # Closed since, or not known.
        if number in unix or number in inet or number not in sockets_of(running.pids()):
            continue
        assert number in listened, f"a socket of a family that is not known: {number}"
        open_ports.add(listened[number])
    assert open_ports == ({running.port} if running.port else set())
    ends = [path.removeprefix(str(running.shared)) for path in listening(running)]
    expected = KNOWN_SOCKETS | (WITH_ENGINE if ENGINE else {})
    unused = [name for pattern, name in expected.items() if not any(re.fullmatch(pattern, end) for end in ends)]
    assert not unused, f"there is none any more: {unused}"


@pytest.mark.row("D5")
def test_no_socket_is_reached(running: Running) -> None:
    paths = listening(running)
    assert json.loads(run_as_nobody(CONNECT, json.dumps([*map(hello, paths)]))) == ["PermissionError"] * len(paths)


@pytest.mark.row("D5")
def test_every_socket_refuses_other_users_itself(running: Running) -> None:
    """Where somebody has opened the directories: by the peer's uid, before a byte is sent."""
    paths = listening(running)
    opened = {parent for path in paths for parent in Path(path).parents if parent.is_relative_to(running.shared)}
    everything = [*opened, *map(Path, paths)]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in everything]
    try:
        for path in everything:
            path.chmod(0o777)
        answers = json.loads(run_as_nobody(CONNECT, json.dumps([*map(hello, paths)])))
    finally:
        for path, mode in zip(everything, modes, strict=True):
            path.chmod(mode)
    refused = ("b''", "ConnectionResetError", "BrokenPipeError")
    assert [(path, answer) for path, answer in zip(paths, answers, strict=True) if answer not in refused] == []
    ours = json.loads(run_python("-c", CONNECT, json.dumps([*map(hello, paths)])).stdout)
    assert [(path, answer) for path, answer in zip(paths, ours, strict=True) if not answer.startswith("b")] == []
    assert "b''" not in ours, "each answers this user"


@pytest.mark.row("D5")
def test_no_file_is_read_changed_or_replaced(running: Running) -> None:
    """Sockets, tokens, logs, reports, post-mortem files, snapshots, and the directories that they are in."""
    paths = running.paths()
    names = {re.sub(r"[0-9a-f]{8}|\d+", "N", path.removeprefix(str(running.shared))) for path in paths}
    for expected in (
        r"/r", "/r/p-N", "/r/p-N/tools", "/r/p-N/tools.token", "/r/p-N/program.json", "/r/p-N/.lock", "/r/p-N/root",
        "/memory", "/timeline", "/runs", "/dap.sock",
    ):  # fmt: skip
        assert expected in names, names
    assert any(name.endswith(".log") for name in names) and any("post-mortem/" in name for name in names), names
    theirs = running.shared / "theirs"
    theirs.mkdir(exist_ok=True)
    give_to_nobody(theirs)
    try:
        done = json.loads(run_as_nobody(ATTACK, str(theirs), json.dumps(paths)))
    finally:
        shutil.rmtree(theirs)
    assert done == []
    assert set(paths) <= set(running.paths())


@pytest.mark.row("D5")
def test_all_that_is_written_to_is_where_others_cannot_reach(running: Running) -> None:
    """Also what has no name any more; a file elsewhere would have to be looked at by the test above."""
    found = set()
    for pid in running.pids():
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                flags = int(re.findall(r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text())[0], 8)
                facts = entry.stat()
                name = os.readlink(entry)
                is_file = stat.S_ISREG(facts.st_mode) or stat.S_ISFIFO(facts.st_mode)
                if flags & os.O_ACCMODE and int(entry.name) > 2 and is_file and name.startswith("/"):
                    found.add(name)
    elsewhere = {name for name in found if not name.startswith((f"{running.shared}/", "/memfd:"))}
    assert not elsewhere
    assert any(name.endswith("/root") for name in found), "it is looked at what is open"


@pytest.mark.row("D5")
def test_no_process_is_looked_into(running: Running) -> None:
    pids = running.pids()
    assert len(pids) >= 7
    assert json.loads(run_as_nobody(PEEK, json.dumps(pids))) == []
    (token,) = (path.read_text() for path in running.shared.glob("r/*/tools.token"))
    secrets = [token, running.address.strip().rstrip("/").rpartition("/")[2]]
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]  # which everybody may read
    assert not [line for line in lines for secret in filter(None, secrets) if secret in line]


@pytest.mark.row("D5")
def test_the_page_of_top_is_for_those_who_have_its_address(running: Running) -> None:
    if not running.port:
        pytest.skip("not installed: textual-serve")
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "AAAA",
        "Sec-WebSocket-Version": 13,
    }
    tried = [
        ("GET", "/", {}),
        ("GET", "/ws", upgrade),
        ("GET", "/static/css/xterm.css", {}),
        ("POST", "/", {}),
        ("GET", "/?token=", {"Cookie": f"meshrt-top-{running.port}="}),
        ("GET", "//../", {}),
    ]
    answers = json.loads(run_as_nobody(GET, str(running.port), json.dumps(tried)))
    assert [status for status, _ in answers] == [403] * len(tried)
    assert all("open the complete address that meshrt top --serve has printed" in text for _, text in answers)


@pytest.mark.row("D5")
def test_the_program_has_noticed_nothing(running: Running) -> None:
    done = run_python("-m", "meshrt", "ps", "--json", env=environment(MESHRT_RUNTIME_DIR=str(running.shared / "r")))
    (program,) = json.loads(done.stdout)["programs"]
    assert program["pid"] == running.program.pid and running.program.process.poll() is None


# -- what another user has prepared


@pytest.fixture
def shared() -> Iterator[Path]:
    needs_root()
    path = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


PREPARE = """
import os, sys
shared, uid, victim = sys.argv[1:]
os.umask(0)
os.mkdir(f"{shared}/meshrt-{uid}", 0o777)
os.mkdir(f"{shared}/runtime", 0o777)
os.mkdir(f"{shared}/runs", 0o777)
os.symlink(os.path.dirname(victim), f"{shared}/runtime/meshrt")
os.symlink(victim, f"{shared}/snapshot")
os.mkdir(f"{shared}/meshrt-{uid}-aaaaaaaa", 0o700)
"""
PREPARED = "from meshrt import proc_mesh\nproc_mesh(n=1).initialized.get()\nimport os, sys\nsys.stdin.readline()"


@pytest.mark.slow
@pytest.mark.row("D5")
def test_nothing_that_another_user_has_prepared_is_used(shared: Path, tmp_path: Path) -> None:
    """Directories that the environment names, as after ``su``; names in ``/tmp``; a link to write through."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run_as_nobody(PREPARE, str(shared), str(os.geteuid()), str(victim))
    env = environment(
        TMPDIR=str(shared),
        XDG_RUNTIME_DIR=str(shared / "runtime"),
        MESHRT_RUNS=str(shared / "runs"),
        HOME=str(tmp_path),
    )
    del env["MESHRT_RUNTIME_DIR"]
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *shared.iterdir()] if path != tmp_path / "victim"}
    del before[tmp_path]
    command = [sys.executable, "-c", PREPARED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=env, **pipes) as program:  # type: ignore[call-overload]

        def found() -> bool:
            return str(program.pid) in run_python("-m", "meshrt", "ps", env=env).stdout

        wait_until(found, LONG, "commands find it")
        saved = functools.partial(run_python, "-m", "meshrt", "memory", str(program.pid), "--save", env=env)
        refused = saved(str(shared / "snapshot"))
        assert refused.returncode != 0
        assert "snapshot is a link of uid 65534, which is not followed" in refused.stderr
        assert saved(str(shared / "mine")).returncode == 0
        _, said = program.communicate("\n", SECONDS)
    assert victim.read_text() == "precious"
    assert (shared / "mine").stat().st_mode & 0o777 == 0o600
    assert {path: path.stat().st_mtime_ns for path in before} == before, "nothing was made there"
    lines = [line for line in said.splitlines() if "is used instead" in line]
    assert len(lines) == 2, said
    assert f"{shared}/runtime/meshrt is not safe: {shared}/runtime belongs to uid 65534, not to you" in lines[0]
    assert f"MESHRT_RUNS is not safe: {shared}/runs belongs to uid 65534, not to you" in lines[1]
