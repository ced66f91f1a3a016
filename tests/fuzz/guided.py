"""``python -m tests.fuzz.guided TARGET SECONDS SEED``: one target, led by atheris; it ends with the first find."""

from __future__ import annotations

import importlib
import logging
import sys
import zlib

__all__ = ["main"]


def main() -> None:
    atheris = importlib.import_module("atheris")  # optional: `pip install --group fuzz`
    logging.getLogger("meshrt").addHandler(logging.NullHandler())  # refusals are what is expected
    name, seconds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with atheris.instrument_imports(include=["meshrt"]):
        targets = importlib.import_module("tests.fuzz.targets")  # imports what is tried
    running = importlib.import_module("tests.fuzz.running")
    mutating = importlib.import_module("tests.fuzz.mutating")
    target = targets.TARGETS[name]

    def changed(data: bytes, most: int, drawn: int) -> bytes:
        """Half of the changes are of values, of which libFuzzer knows nothing."""
        mutator = mutating.Mutator(drawn, target.examples(), target.form, target.words)
        if drawn % 2:
            return bytes(atheris.Mutate(data, most))[:most]
        result: bytes = mutator.changed(data, most) if len(data) > 1 else mutator.next()[:most]
        return result

    flags = [
        f"-max_total_time={max(1, seconds)}",
        f"-seed={zlib.crc32(b'%d' % seed) or 1}",
        "-max_len=65536",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *flags], lambda data: running.attempt(target, data), custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
