"""Machines made of namespaces, on one machine: each has a network interface, processes, a clock and files of its own.

::

    switch (a network namespace)       bridge0, 10.7.0.254
      port1 --- eth0 of machine n1     10.7.0.1, fd07::1
      port2 --- eth0 of machine n2     10.7.0.2, fd07::2

What two machines have apart: network, pids, /tmp, /run, /dev/shm, HOME, host name, boot id, and the monotonic clock (a
day for each). What they share: the processor, and every other file (Python, this checkout), as a cluster with a common
file system has; /tmp/shared is the place that they write to. The machine that the tests run on is none of them: nothing
is made outside of namespaces.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["Machine", "Switch", "machines", "why_not", "why_not_delayed"]

_DAY = 86_400
_REPOSITORY = Path(__file__).resolve().parents[2]
#: The first process of a machine: it has nothing to do but to reap orphans.
_INIT = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
print("up", flush=True)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        signal.sigwait({signal.SIGCHLD})
"""


class Machine:
    """One machine.

    Args:
        shares: It shares pids, /tmp, /run, /dev/shm and HOME with the machine that the tests run on.

    Attributes:
        name: Its host name, which the others can look up: ``n1``.
        address: Its IPv4 address.
    """

    def __init__(self, switch: Switch, number: int, *, shares: bool = False) -> None:
        self.name = f"n{number}"
        self.address = f"10.7.0.{number}"
        self.address6 = f"fd07::{number}"
        self._port = f"port{number}"
        #: What undoes changes of its network.
        self._added: list[str] = []
        #: What delays all that passes its cable.
        self._delaying: subprocess.Popen[bytes] | None = None
        self.switch = switch
        self._shares = shares
        namespaces = ["--net", "--mount", "--uts", "--time"]
        if not shares:
            namespaces += ["--pid", "--ipc", "--cgroup", "--mount-proc"]
        offsets = ["--monotonic", str(number * _DAY), "--boottime", str(number * _DAY)]
        self._init = subprocess.Popen(
            [*switch.inside, "unshare", *namespaces, *offsets, "--fork", "--kill-child",
             sys.executable, "-I", "-c", _INIT],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            self.pid = _child_that_is_up(self._init)
            self._make_files()
            self._connect()
        except BaseException:
            self.close()
            raise

    def command(self, *words: str | os.PathLike[str]) -> list[str]:
        """Return the command that runs ``words`` there."""
        # Where pids are shared, the command is the program itself: nsenter stays its parent if it enters those.
        namespaces = ["--net", "--mount", "--uts", "--time"] if self._shares else ["--all"]
        enter = ["nsenter", "--target", str(self.pid), *namespaces, "--wd=/tmp"]
        return [*self.switch.inside, *enter, *map(str, words)]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a user who has logged in there."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        return {**kept, "HOME": "/tmp/home", "USER": "root", "HOSTNAME": self.name, "TERM": "xterm", **more}

    def start(
        self, *words: str | os.PathLike[str], env: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """Start a program there; ``options`` are those of `subprocess.Popen`."""
        return subprocess.Popen(self.command(*words), env=env or self.environment(), **options)  # type: ignore[call-overload,no-any-return]

    def run(self, *words: str | os.PathLike[str], timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a program there to its end; its output is text."""
        return subprocess.run(
            self.command(*words), env=self.environment(), capture_output=True, text=True, timeout=timeout
        )

    def processes(self) -> dict[int, str]:
        """Return the processes that run there, without its first one: pids as seen here, and command lines."""
        if self._init.poll() is not None:
            return {}
        namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace and int(entry.name) != self.pid:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    # -- what may happen to a machine

    def cut(self) -> None:
        """Pull its cable: nothing goes in or out, and neither side is told."""
        self.switch.run("bridge", "link", "set", "dev", self._port, "state", "0")

    def plug(self) -> None:
        """Plug the cable in again."""
        self.switch.run("bridge", "link", "set", "dev", self._port, "state", "3")

    def filter(self, *rules: str) -> None:
        """Look at all that comes in and goes out by rules of nftables: ``in ip saddr 10.7.0.2 drop``."""
        text = ["table inet filter {"]
        for chain, hook in (("in", "input"), ("out", "output")):
            text += [f"chain {chain} {{ type filter hook {hook} priority 0;"]
            text += [rule.partition(" ")[2] for rule in rules if rule.startswith(f"{chain} ")]
            text += ["}"]
        done = self.run("nft", "\n".join([*text, "}"]))
        assert done.returncode == 0, done.stderr

    def only_out(self) -> None:
        """Let nothing in that it has not asked for, as a translation of addresses does."""
        self.filter(
            "in iif lo accept", "in ct state established,related accept", "in meta l4proto icmpv6 accept", "in drop"
        )

    def add_interface(self, name: str, address: str) -> None:
        """Add an interface that leads nowhere."""
        self.change(f"ip link add {name} type veth peer name {name}-end", f"ip addr add {address} dev {name}")
        self.change(f"ip link set {name} up", f"ip link set {name}-end up")
        self._added.append(f"ip link del {name}")

    def change(self, *commands: str, undo: Sequence[str] = ()) -> None:
        """Run commands there; `restore` undoes that by others."""
        for command in commands:
            done = self.run(*command.split())
            assert done.returncode == 0, (command, done.stderr)
        self._added += undo

    def restore(self) -> None:
        """Undo `filter`, `add_interface`, `change`, `fill` and `delay`."""
        if self._delaying is not None:
            self._delaying.kill()  # and with it the interfaces that it has made
            self._delaying.communicate()
            self._delaying = None
            self.switch.run("ip", "link", "set", self._port, "master", "bridge0")
            self.switch.run("ip", "link", "del", f"slow{self._port}")
        if shutil.which("nft"):
            self.run("nft", "flush", "ruleset")
        while self._added:
            self.change(self._added.pop())

    def traffic(self) -> tuple[int, int]:
        """Return how many bytes it has sent and received through its cable."""
        out = self.switch.read("ip", "-json", "-statistics", "link", "show", "dev", self._port)
        stats = json.loads(out)[0]["stats64"]
        return stats["rx"]["bytes"], stats["tx"]["bytes"]

    def fill(self) -> None:
        """Let its disk, /tmp and all below it, be full: nothing more can be written there."""
        done = self.run("sh", "-c", "mount -o remount,size=64m /tmp && cat /dev/zero > /tmp/full")
        assert "No space left on device" in done.stderr, done.stderr
        self._added += ["mount -o remount,size=50% /tmp", "rm /tmp/full"]

    def delay(self, seconds: float) -> None:
        """Have all that passes its cable take so long, each way."""
        relay = f"slow{self._port}"
        command = [*self.switch.inside, sys.executable, "-m", "tests.cluster.delaying", f"{relay}a", f"{relay}b"]
        self._delaying = subprocess.Popen(
            [*command, str(seconds)], cwd=_REPOSITORY, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._delaying.stdout is not None and self._delaying.stdout.readline() == b"up\n"
        run = self.switch.run
        run("ip", "link", "add", relay, "type", "bridge")
        run("ip", "link", "set", relay, "up")
        run("ip", "link", "set", self._port, "master", relay)
        run("ip", "link", "set", f"{relay}a", "master", relay, "up")
        run("ip", "link", "set", f"{relay}b", "master", "bridge0", "up")

    def limit(self, rate: str) -> None:
        """Limit what it sends and receives, as `tc` writes a rate: ``1gbit``."""
        shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "100ms"]
        self.switch.run("tc", "qdisc", "replace", "dev", self._port, *shape)
        assert self.run("tc", "qdisc", "replace", "dev", "eth0", *shape).returncode == 0

    def freeze(self) -> None:
        """Stop all its processes, as a virtual machine that is paused; the others cannot tell it from a slow one."""
        for pid in (self.pid, *self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        for pid in (self.pid, *self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self, pid: int) -> None:
        """Kill one process."""
        os.kill(pid, signal.SIGKILL)

    def end_processes(self) -> None:
        """Kill everything on it but its first process, all at once."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                self.kill(pid)

    def power_off(self) -> None:
        """End everything on it at once, without a word to anyone."""
        self.cut()
        self._init.kill()
        self._init.wait()

    def close(self) -> None:
        """Remove it."""
        if self._delaying is not None:
            self._delaying.kill()
            self._delaying.communicate()
        if self._init.poll() is None:
            self._init.kill()
        self._init.communicate()

    def _make_files(self) -> None:
        boot_id = self.switch.names.with_name(f"boot_id.{self.name}")
        lines = ["set -e", "mount --make-rprivate /", f"mount --bind {self.switch.names} /etc/hosts"]
        lines += [f"echo {uuid.uuid4()} > {boot_id}", f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id"]
        lines += [f"hostname {self.name}"]
        if not self._shares:
            # What the tests need of /tmp stays visible there.
            keep = {path: path for path in {str(_REPOSITORY), sys.prefix} if path.startswith("/tmp/")}
            keep["/tmp/shared"] = str(self.switch.shared)
            lines += ["mount -t tmpfs none /run"]
            lines += [
                f"mkdir -p /run/kept{path} && mount --bind {shown} /run/kept{path}" for path, shown in keep.items()
            ]
            lines += ["mount -t tmpfs none /tmp && chmod 1777 /tmp"]
            lines += [f"mkdir -p {path} && mount --move /run/kept{path} {path}" for path in keep]
            lines += ["mount -t tmpfs none /dev/shm", "mount -t tmpfs none /run", "mkdir -m 700 /tmp/home"]
        done = self.run("sh", "-c", "; ".join(lines))
        assert done.returncode == 0, done.stderr

    def _connect(self) -> None:
        run = self.switch.run
        run("ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        run("ip", "link", "set", self._port, "master", "bridge0", "up")
        for words in (
            "ip link set lo up",
            f"ip addr add {self.address}/24 dev eth0",
            f"ip addr add {self.address6}/64 dev eth0 nodad",
            "ip link set eth0 up",
        ):
            done = self.run(*words.split())
            assert done.returncode == 0, (words, done.stderr)


class Switch:
    """What connects the machines: a bridge in a network namespace of its own.

    Attributes:
        shared: The directory that is ``/tmp/shared`` on each machine.
    """

    def __init__(self, count: int, directory: Path) -> None:
        self.shared = directory / "shared"
        self.shared.mkdir()
        self.names = directory / "hosts"
        lines = [f"10.7.0.{number} n{number}\nfd07::{number} n{number}" for number in range(1, count + 1)]
        self.names.write_text("127.0.0.1 localhost\n::1 localhost\n" + "\n".join(lines) + "\n")
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self._keeper = subprocess.Popen(
            ["unshare", *user, "--net", "--fork", "--kill-child", "sh", "-c", "echo up; exec sleep infinity"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            #: What a command begins with that runs inside.
            self.inside = ["nsenter", "--target", str(_child_that_is_up(self._keeper)), "--net"]
            if user:  # whose groups nobody but root can set
                self.inside += ["--user", "--preserve-credentials"]
            self.run("ip", "link", "set", "lo", "up")
            # Without an address of its own it takes that of one of its ports, and another one when these change.
            self.run("ip", "link", "add", "bridge0", "address", "02:00:00:00:00:fe", "type", "bridge")
            self.run("ip", "addr", "add", "10.7.0.254/24", "dev", "bridge0")
            self.run("ip", "link", "set", "bridge0", "up")
        except BaseException:
            self.close()
            raise

    def run(self, *words: str) -> None:
        """Run a command in its namespace."""
        subprocess.run([*self.inside, *words], check=True, capture_output=True, text=True)

    def read(self, *words: str) -> str:
        """Run a command in its namespace; returns what it prints."""
        return subprocess.run([*self.inside, *words], check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """Remove it, and all cables."""
        self._keeper.kill()
        self._keeper.communicate()


def _child_that_is_up(process: subprocess.Popen[bytes]) -> int:
    """Return the pid of the child of a process, which says that it is up. Raises AssertionError: it does not."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n", process.communicate()[1].decode().strip()
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


@contextlib.contextmanager
def machines(count: int, *, shares: bool = False) -> Iterator[list[Machine]]:
    """``count`` machines on one switch; all of it is removed at the end. ``shares``: as `Machine`."""
    directory = Path(tempfile.mkdtemp(prefix="switch-"))
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, directory)
        switch = Switch(count, directory)
        undo.callback(switch.close)
        made: list[Machine] = []
        for number in range(1, count + 1):
            made.append(Machine(switch, number, shares=shares))
            undo.callback(made[-1].close)
        yield made


@functools.cache
def why_not() -> str:
    """Return why machines cannot be made here; "" if they can."""
    for tool in ("unshare", "nsenter", "ip", "bridge"):
        if shutil.which(tool) is None:
            return f"the program {tool} is not installed"
    try:
        with machines(1):
            return ""
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip()
    except AssertionError as error:
        why = str(error)
    return f"namespaces are not allowed here: {why}"


def why_not_delayed() -> str:
    """Return why a machine cannot have a slow cable (`Machine.delay`); "" if it can."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"/dev/net/tun cannot be opened: {error.strerror}"
    return ""
