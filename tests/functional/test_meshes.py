"""``proc_mesh``: its dimensions and its options."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

import pytest

from meshrt import Point, ProcMesh, SpawnError, UsageError, host_mesh, proc_mesh, this_host
from meshrt.hooks.plugins import PLUGINS
from tests.support.actors import Echo


def getenv(name: str) -> str | None:
    return os.environ.get(name)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"hosts": 2, "gpus": 3}, {"gpus": 3, "hosts": 2}, {"dp": 2, "pp": 1, "tp": 2}])
def test_dimensions_stand_in_the_order_given(sizes: dict[str, int]) -> None:
    options: dict[str, Any] = {**sizes}
    mesh = proc_mesh(**options)
    assert list(mesh.sizes.items()) == list(sizes.items())
    echo = mesh.spawn("echo", Echo)
    points = [point for point, _, _ in echo.where.call().get().values()]
    assert [list(point) for point in points] == [list(sizes)] * mesh.size()
    assert points == [dict(mesh.extent.point(rank)) for rank in range(mesh.size())]  # row-major
    assert len(set(echo.pid.call().get().values())) == mesh.size()


def test_without_dimensions_and_without_gpus_it_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    mesh = proc_mesh()
    assert mesh.sizes == {}
    assert len(mesh) == 1
    assert mesh.spawn("echo", Echo).where.call_one().get() == ({}, {}, "echo")


def test_without_dimensions_the_visible_gpus_are_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3,5")
    mesh = proc_mesh()
    assert mesh.sizes == {"gpus": 3}
    assert mesh.spawn("echo", Echo).rank.call().get().values() == [0, 1, 2]


def test_env_as_a_dict_reaches_every_rank() -> None:
    echo = proc_mesh(n=2, env={"MESH_TEST": "yes"}).spawn("echo", Echo)
    assert echo.apply.call(getenv, "MESH_TEST").get().values() == ["yes", "yes"]
    assert "MESH_TEST" not in os.environ


def test_env_as_a_function_of_the_point() -> None:
    def env(point: Point) -> dict[str, str]:
        return {"WHERE": f"{point['hosts']}-{point['gpus']}-{point.rank}"}

    echo = proc_mesh(hosts=2, gpus=2, env=env).spawn("echo", Echo)
    assert echo.apply.call(getenv, "WHERE").get().values() == ["0-0-0", "0-1-1", "1-0-2", "1-1-3"]


def test_env_is_there_when_modules_are_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reads_env.py").write_text("import os\nSEEN = os.environ.get('MESH_TEST')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    echo = proc_mesh(n=2, env={"MESH_TEST": "early"}, preload=["reads_env"]).spawn("echo", Echo)

    def seen() -> Any:
        import reads_env  # type: ignore[import-not-found]  # made by this test, for the ranks

        return reads_env.SEEN

    assert echo.apply.call(seen).get().values() == ["early", "early"]


def test_preload_imports_once_before_the_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module notes the process that imports it: one process, and it is none of the ranks."""
    log = tmp_path / "imports"
    (tmp_path / "heavy_module.py").write_text(
        f"import os\nPID = os.getpid()\nwith open({str(log)!r}, 'a') as file:\n    file.write(f'{{PID}}\\n')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    echo = proc_mesh(n=3, preload=["heavy_module"]).spawn("echo", Echo)

    def imported_by() -> Any:
        import heavy_module  # type: ignore[import-not-found]  # made by this test, for the ranks

        return heavy_module.PID

    pids = echo.pid.call().get().values()
    (importer,) = set(echo.apply.call(imported_by).get().values())
    assert log.read_text().split() == [str(importer)]
    assert importer not in [*pids, os.getpid()]
    assert len(set(pids)) == 3


def test_a_preloaded_module_may_start_a_thread_where_warnings_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's filters are those of the ranks: only the fork itself, an error from Python 3.15 on, goes without."""
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, warnings\nwarnings.simplefilter('error')\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    echo = proc_mesh(n=2, preload=["starts_a_thread"]).spawn("echo", Echo)

    def first_filter() -> str:
        import warnings

        return str(warnings.filters[0][0])

    assert echo.apply.call(first_filter).get().values() == ["error", "error"]


@pytest.mark.slow
@pytest.mark.parametrize("preload", [[], ["json"]])
def test_a_large_mesh_is_forked_with_what_each_rank_would_import(preload: list[str]) -> None:
    """Where all of many ranks stop or fail at once, nothing is left to be imported by each."""
    echo = proc_mesh(n=64, preload=preload).spawn("echo", Echo)

    def imported() -> set[str]:
        import sys

        return {"asyncio", *(module for module, _ in PLUGINS.values())} & set(sys.modules)

    assert all(len(modules) == 1 + len(PLUGINS) for modules in echo.apply.call(imported).get().values())


def test_a_preload_that_fails_is_the_spawn_error() -> None:
    mesh = proc_mesh(n=2, preload=["no_such_module_at_all"])
    with pytest.raises(SpawnError, match=r"No module named 'no_such_module_at_all'"):
        mesh.get(20)
    with pytest.raises(SpawnError, match="no_such_module_at_all"):
        mesh.spawn("echo", Echo).get(20)


def test_name_is_shown_and_made_up_otherwise() -> None:
    named = proc_mesh(name="trainers", n=1)
    assert named.name == "trainers"
    assert "trainers" in repr(named)
    other, third = proc_mesh(n=1), proc_mesh(n=1)
    assert other.name and other.name != third.name


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gpus": 0}, "gpus=0"),
        ({"gpus": -1}, "gpus=-1"),
        ({"gpus": True}, "gpus=True"),
        ({"gpus": 2.0}, "gpus=2.0"),
        ({"gpu": "4"}, "options are name, env, setup, preload"),
        ({"n": 1, "name": "a b"}, "'a b'"),
        ({"n": 1, "env": [("a", "b")]}, "env is a dict"),
        ({"n": 1, "env": {"a": 1}}, "names and values are strings"),
        ({"n": 1, "env": {"a=b": "1"}}, "'a=b'"),
        ({"n": 1, "env": lambda point: None}, "returns one"),
        ({"n": 1, "setup": 3}, "setup is a function"),
        ({"n": 1, "preload": "os"}, "list of module names"),
        ({"n": 1, "preload": [3]}, "list of module names"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_starts(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        proc_mesh(**options)
    assert text in str(caught.value)


def test_initialized_get_and_repr() -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    assert mesh.initialized.get(20) is None
    assert mesh.get(20) is mesh
    assert "hosts=2" in repr(mesh) and "gpus=2" in repr(mesh)
    part = mesh.slice(hosts=1)
    assert type(part) is ProcMesh and part.mesh_id == mesh.mesh_id
    assert part.spawn("part", Echo).where.call().get().values() == [
        ({"gpus": 0}, {"gpus": 2}, "part"),
        ({"gpus": 1}, {"gpus": 2}, "part"),
    ]


def test_handles_in_a_notebook() -> None:
    mesh = proc_mesh(hosts=2, gpus=2, name="train")
    text = mesh._repr_html_()
    assert "&lt;ProcMesh train on {hosts=2,gpus=2}&gt;" in text and text.count("<tr>") == 3
    text = host_mesh(2)._repr_html_()
    assert "&lt;HostMesh not placed yet (hosts=2)&gt;" in text and text.count("<tr>") == 2
    assert html.escape(repr(this_host())) in this_host()._repr_html_()
    text = mesh.spawn("echo", Echo)._repr_html_()
    assert "&lt;ActorMesh echo: Echo on {hosts=2,gpus=2}&gt;" in text
    assert "<td>apply(function: Any, *args: Any) -&gt; Any " in text and "Run ``function`` here." in text


def too_large() -> str:
    try:
        proc_mesh(n=1_000_000)
    except SpawnError as error:
        return str(error)
    return ""


def test_a_rank_is_told_in_the_same_class_why_its_mesh_cannot_be_started() -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo)
    assert echo.apply.call_one(too_large).get().startswith("1000000 ranks need about ")
