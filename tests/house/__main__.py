"""``python -m tests.house [--json]``: prints the figures of the structure, and where they come from."""

from __future__ import annotations

import argparse
import json

from tabulate import tabulate

from tests.house.figures import Figure, figures_of_meshrt
from tests.house.start import import_milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object instead of a table and lists")
    given = parser.parse_args()
    found = [*figures_of_meshrt(), Figure("milliseconds of `import meshrt`", round(import_milliseconds(), 1))]
    print(as_json(found) if given.json else as_text(found))


def as_json(found: list[Figure]) -> str:
    """Return one object: by name of a figure ``now``, ``aim`` (null: none) and ``places``."""
    return json.dumps(
        {each.name: {"now": each.now, "aim": each.aim, "places": each.places} for each in found}, indent=1
    )


def as_text(found: list[Figure]) -> str:
    """Return the table, then the places of each figure."""
    rows = [(each.name, f"{each.now:,g}", "" if each.aim is None else f"{each.aim:,}") for each in found]
    table = tabulate(rows, headers=("figure", "now", "aim"), disable_numparse=True, colalign=("left", "right", "right"))
    lists = ["\n".join([f"\n{each.name}:", *(f"  {place}" for place in each.places)]) for each in found if each.places]
    return "\n".join([table, *lists])


if __name__ == "__main__":
    main()
