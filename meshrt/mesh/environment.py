"""The environment variables of ranks, as the user gives them: checked before anything is started."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from meshrt.errors import RankPlace, UsageError
from meshrt.hooks.plugins import POST_MORTEM_VALUES, SWITCH_VALUES
from meshrt.selection import Extent, Point
from meshrt.transport.threads import on_event_loop

__all__ = ["POST_MORTEM", "EnvOption", "check_switches", "checked_env", "env_of_ranks"]

Env = Mapping[str, str]
EnvOption = Env | Callable[[Point], Env | Awaitable[Env]] | None

POST_MORTEM = "MESHRT_POST_MORTEM"
#: Environment variables -> the values that they may have.
_SWITCHES: Mapping[str, Iterable[str]] = {
    POST_MORTEM: POST_MORTEM_VALUES,
    "MESHRT_DEBUG": SWITCH_VALUES,
    "MESHRT_DEBUG_AUTO": SWITCH_VALUES,
    "MESHRT_STORE_SEPARATE": SWITCH_VALUES,
    "MESHRT_STORE_SPILL": SWITCH_VALUES,
}
#: Bytes of the environment variables of one rank: they travel in a control message.
_ENV_MAX = 400 << 10


def env_of_ranks(function: Callable[[Point], Env | Awaitable[Env]], extent: Extent) -> dict[int, Mapping[str, str]]:
    """Return the environment of each rank; what is to be awaited is awaited, of all ranks together."""
    points = [extent.point(rank) for rank in range(extent.nelements)]
    found: list[object] = []
    for point in points:
        with _named(point):
            found.append(function(point))
    if any(map(inspect.isawaitable, found)):
        found = _awaited(found, points)
    checked: dict[int, Mapping[str, str]] = {}
    for point, env in zip(points, found, strict=True):
        try:
            checked[point.rank] = checked_env(env)
        except UsageError as error:
            raise UsageError(f"{error} (of {_where(point)})") from None
    return checked


def _awaited(found: Sequence[object], points: Sequence[Point]) -> list[object]:
    import asyncio  # start-up: few functions are async

    async def one(point: Point, env: object) -> object:
        with _named(point):
            return await env if inspect.isawaitable(env) else env

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*map(one, points, found))

    if not on_event_loop():
        return asyncio.run(all_of_them())
    from concurrent.futures import ThreadPoolExecutor  # start-up: as above

    with ThreadPoolExecutor(1) as other:  # this loop runs already, and the caller wants a mesh, not a future
        return other.submit(asyncio.run, all_of_them()).result()


@contextmanager
def _named(point: Point) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the function env= for {_where(point)}")
        raise


def _where(point: Point) -> str:
    return RankPlace("", "", point.rank, tuple(point.items())).where


def checked_env(env: object) -> dict[str, str]:
    """Return what a user gave if it can be the environment of a process. Raises UsageError."""
    if not isinstance(env, Mapping):
        raise UsageError(f"env is a dict of strings, or a function of the point that returns one, not {env!r}")
    for key, value in env.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"env: names and values are strings, not {key!r}: {value!r}")
        if "=" in key or "\0" in key + value or not key:
            raise UsageError(f"env: {key!r} is not a valid name of an environment variable")
    if sum(4 * (len(key) + len(value)) for key, value in env.items()) > _ENV_MAX:
        raise UsageError(f"env: more than {_ENV_MAX // 4} characters; pass a file name, or the data as an argument")
    check_switches(env)
    return dict(env)


def check_switches(env: Env) -> None:
    """Check the variables of meshrt itself. Raises UsageError."""
    for variable, values in _SWITCHES.items():
        value = env.get(variable, "")
        if value not in values:
            raise UsageError(f"{variable} is one of {', '.join(filter(None, values))}, not {value!r}")
