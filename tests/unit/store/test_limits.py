"""What the store may take: by a made-up tree of control groups, by the environment, by what the kernel refuses."""

from __future__ import annotations

import errno
import functools
import os
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.store import cgroup, limits
from meshrt.store.arena import Arena, file_chunk, memory_chunk
from meshrt.store.limits import free_in_group, free_memory, parse_limit, store_limit

GIB = 1 << 30
MIB = 1 << 20
Group = Callable[..., Path]


@pytest.fixture
def member_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Be in a group, as ``/proc/self/cgroup`` shows it; both versions are mounted below ``tmp_path``."""
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", str(tmp_path / "membership"))
    monkeypatch.setattr(cgroup, "_V2", str(tmp_path / "v2"))
    monkeypatch.setattr(cgroup, "_V1", str(tmp_path / "v1"))
    monkeypatch.delenv(limits.LIMIT, raising=False)
    (tmp_path / "v1").mkdir()
    (tmp_path / "v2").mkdir()

    def be(membership: str) -> None:
        (tmp_path / "membership").write_text(membership)

    return be


def v2(folder: Path, limit: str, used: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")


def v1(folder: Path, limit: int, used: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"inactive_file 0\ntotal_inactive_file {cache}\n")


def test_the_limit_of_a_group_and_of_those_above_it(member_of: Callable[[str], None], tmp_path: Path) -> None:
    member_of("0::/job/step\n")
    v2(tmp_path / "v2/job/step", "max", GIB // 2)
    v2(tmp_path / "v2/job", str(GIB), GIB - 100 * MIB, cache=50 * MIB)
    assert free_in_group() == [150 * MIB], "a cache is given back when memory is wanted"
    assert store_limit() == int(GIB * 0.3) and free_memory() == 150 * MIB
    v2(tmp_path / "v2/job/step", str(GIB // 4), 0)
    assert store_limit() == int(GIB // 4 * 0.3)


def test_version_1(member_of: Callable[[str], None], tmp_path: Path) -> None:
    member_of("5:cpu:/elsewhere\n4:memory:/job\n0::/\n")
    v1(tmp_path / "v1", 9223372036854771712, 5 * GIB)
    v1(tmp_path / "v1/job", GIB, 300 * MIB, cache=100 * MIB)
    assert free_in_group() == [GIB - 200 * MIB], "what the topmost group has is no limit"


@pytest.mark.parametrize("membership", ["0::/kubepods/pod7/container\n", "0::/../..\n"])
def test_in_a_container_what_is_mounted_is_the_group(
    member_of: Callable[[str], None], tmp_path: Path, membership: str
) -> None:
    member_of(membership)
    v2(tmp_path / "v2", str(GIB), 0)
    assert free_in_group() == [GIB]


@pytest.mark.parametrize("membership", ["", "garbage\n", "0::/\n", "4:memory:/\n"])
def test_where_there_is_no_limit(member_of: Callable[[str], None], membership: str) -> None:
    member_of(membership)
    assert free_in_group() == []
    assert store_limit() == int(limits._meminfo("MemTotal") * 0.3)


@pytest.mark.parametrize(
    ("text", "expected"), [("4GiB", 4 * GIB), ("500MB", 500 * 10**6), ("30%", 300), ("0", 0), ("1.5 kib", 1536)]
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_limit(text, 1000) == expected


@pytest.mark.parametrize("text", ["lots", "101%", "-1", "4 GiB of it", "1e9", "nan", "٣"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="expected a size such as 4GiB or 500MB, or a share such as 30%"):
        parse_limit(text, 1000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "meshrt-test", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    # Lazily: what is still mapped of it goes when it is not.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_an_error_and_no_fault(small_disk: Path) -> None:
    arena = Arena(functools.partial(file_chunk, str(small_disk)), lambda _chunk: None, lambda _size: None)
    block = arena.allocate(MIB // 2)
    block.write(0, bytes(MIB // 2))
    with pytest.raises(OSError, match=re.escape(f"[Errno {errno.ENOSPC}]")):
        arena.allocate(MIB)
    assert arena.taken == MIB // 2
    arena.allocate(MIB // 4).write(0, b"x")
    arena.close()
    assert os.listdir(small_disk) == []


@pytest.mark.parametrize("make", [functools.partial(file_chunk, "/tmp"), memory_chunk], ids=["file", "memory"])
def test_a_chunk_without_its_size_is_closed_again(
    make: Callable[[str, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int, _size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    files = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        make("meshrt:1", MIB)
    assert os.listdir("/proc/self/fd") == files


@pytest.mark.row("O4")
def test_no_addresses_are_left() -> None:
    """The chunk that could not be mapped is closed again."""
    arena = Arena(memory_chunk, lambda _chunk: None, lambda _size: None)
    before, files = resource.getrlimit(resource.RLIMIT_AS), os.listdir("/proc/self/fd")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 128 * MIB, before[1]))
    try:
        with pytest.raises(OSError, match="bytes of shared memory cannot be mapped: Cannot allocate memory"):
            arena.allocate(MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert os.listdir("/proc/self/fd") == files and not arena.chunks
    arena.allocate(MIB)
    arena.close()
