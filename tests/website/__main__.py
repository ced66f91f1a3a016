"""``python -m tests.website [FOLDER]``: build the site (`make docs`), check it in a browser, and save pictures of it.

What is checked: a search finds a page, the colours switch, no page is wider than the screen of a telephone, and nothing
is loaded from another host. ``--why-not`` prints why there is no browser here, and fails then.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.programs import ROOT
from tests.website.looking import NARROW, Look, looking, why_not

__all__ = ["complaints", "main"]

#: What is searched, and a page that has to be found.
_TERM, _PAGE = "breakpoint", "debugger"
_DARK, _BRIGHT = 80, 200


def complaints(look: Look, names: list[str], pictures: Path) -> list[str]:
    """Return what is wrong with pages, the first of which is the start; pictures of some of them are saved."""
    found = []
    start = names[0]
    look.open(start)
    look.shoot(pictures / "start.png")
    titles = look.found(_TERM)
    if not any(_PAGE in title.lower() for title in titles):
        found.append(f"a search for {_TERM!r} finds {titles}, and no page about {_PAGE}")
    look.shoot(pictures / "search.png")
    look.open(start)
    if (bright := look.colours())[1] < _BRIGHT:
        found.append(f"the background is dark at first: {bright}")
    look.switch_colours()
    if (dark := look.colours())[1] > _DARK:
        found.append(f"the background stays bright when the switch is pressed: {dark}")
    look.shoot(pictures / "dark.png")
    for name in names:
        look.open(name, width=NARROW, height=844)
        found += [f"{name} is too wide for {NARROW} px: {each}" for each in look.too_wide()]
        look.shoot(pictures / f"{Path(name).stem}.narrow.png")
    return found + look.said


def main() -> int:
    """Build, look and report. Returns 1 if something is wrong."""
    reason = why_not()
    if reason or sys.argv[1:] == ["--why-not"]:
        print(reason)
        return 1 if reason else 0
    subprocess.run(["make", "docs"], cwd=ROOT, check=True)
    site = ROOT / "site"
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    names.sort(key=lambda name: name != "index.html")
    pictures = Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp(prefix="meshrt-website-"))
    pictures.mkdir(parents=True, exist_ok=True)
    with looking(site) as look:
        found = complaints(look, names, pictures)
    print(*found, f"{len(names)} pages; pictures are in {pictures}", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
