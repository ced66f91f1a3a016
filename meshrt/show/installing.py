"""The command that installs a missing optional package, and where the documentation is, as this meshrt was installed.

The command names the interpreter and the requirements themselves, not the distribution that meshrt is part of. So it is
the same for a wheel, a checkout and a directory on ``PYTHONPATH``, and does not depend on a published name.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shlex
import shutil
import site
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["distribution", "documentation", "install_command", "install_extra", "requirements"]

#: The console script that identifies a distribution with this package, and the function that it calls.
_SCRIPT, _CALLS = "meshrt", "meshrt.cli:main"
_PACKAGE = Path(__file__).absolute().parents[1]
_EXTRA = re.compile(r"""^(?P<what>[^;]+);\s*extra\s*==\s*["'](?P<extra>[\w-]+)["']\s*$""")


def install_extra(extra: str, *packages: str) -> str:
    """Return the command that installs the requirements of an extra of meshrt into this Python.

    Args:
        packages: Its requirements, if no metadata give their versions.
    """
    return install_command(*(requirements(extra) or packages))


def install_command(*wanted: str) -> str:
    """Return the command that installs these requirements into this Python."""
    what = " ".join(map(shlex.quote, wanted))
    python = shlex.quote(sys.executable or "python")
    if importlib.util.find_spec("pip") is not None:
        return f"{python} -m pip install {what}"
    if shutil.which("uv"):
        return f"uv pip install --python {python} {what}"
    return f"{python} -m ensurepip && {python} -m pip install {what}"


def requirements(extra: str) -> list[str]:
    """Return the requirements of an extra, from this meshrt's checkout or distribution; []: neither was found."""
    checkout = _checkout()
    if checkout is not None:
        return list(checkout.get("optional-dependencies", {}).get(extra, []))
    ours = distribution()
    found = map(_EXTRA.match, (ours and ours.requires) or [])
    return [match["what"].strip() for match in found if match and match["extra"] == extra]


def distribution() -> importlib.metadata.Distribution | None:
    """Return the installed distribution that this package is part of; None: it was imported from elsewhere."""
    for script in importlib.metadata.entry_points(group="console_scripts", name=_SCRIPT):
        if script.value == _CALLS and script.dist is not None:
            for package in _packages(script.dist):
                if package.is_dir() and package.samefile(_PACKAGE):
                    return script.dist
    return None


def documentation() -> Path | None:
    """Return the folder with ``docs/`` and ``examples/``: the checkout, or where a wheel has put it."""
    # As an installer's --target, a virtual environment or the system, and --user have it.
    bases = [str(_PACKAGE.parent), sysconfig.get_path("data"), site.getuserbase()]
    places = [_PACKAGE.parent, *(Path(base, "share", "doc", _PACKAGE.name) for base in bases)]
    return next((each for each in places if (each / "docs" / "finding-faults.md").is_file()), None)


def _packages(candidate: importlib.metadata.Distribution) -> Iterator[Path]:
    """Yield the possible folders of a distribution's package: in it, or in the checkout that it was installed from."""
    yield Path(str(candidate.locate_file(_PACKAGE.name)))
    origin = json.loads(candidate.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        yield Path(unquote(urlsplit(origin["url"]).path)) / _PACKAGE.name


def _checkout() -> dict[str, Any] | None:
    """Return the table ``project`` of the checkout that this package is part of; None: it is not in a checkout."""
    try:
        project: dict[str, Any] = tomllib.loads((_PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return None
    return project if project.get("scripts", {}).get(_SCRIPT) == _CALLS else None
