"""Questions of ranks on other machines for the code of the script, and their answers.

A process of a rank asks its host agent (`meshrt.host.code.asking`), and the agent asks the root. Both use these
messages. What is long is sent in pieces: one question for each of them.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Literal

from meshrt.wire.control import Message

__all__ = ["PIECE", "AskCode", "Code", "digest_of", "digest_of_file"]

#: Bytes of one piece, at most: it has to fit into a control message.
PIECE = 512 << 10


class AskCode(Message, frozen=True, tag="code?"):
    """What a module is, with a piece of its source text.

    Attributes:
        module: Its full name; "": ``file`` is the name of a source file, as code objects have it.
        file: A file or directory of that package, with ``/``; "": the module itself.
        offset: Where the piece begins that is wanted; bytes.
        known: The digest of what the one who asks has: equal data are not sent.
    """

    id: int
    module: str
    file: str = ""
    offset: int = 0
    known: str = ""


class Code(Message, frozen=True, tag="code"):
    """The answer.

    Attributes:
        kind: ``source``: a module, or a source file; ``namespace``: a package without a file; ``file``, ``directory``:
            of a package; ``installed``: the root has it among its libraries, and sends none of these; ``absent``: the
            root has no such thing; ``refused``: it has, and cannot send it.
        path: The name of the file at the root.
        places: Where the modules of a package are; None: it is no package. Of a directory: names, those of
            directories with a ``/``.
        digest: Of the whole file.
        size: Of the whole file; bytes.
        data: The piece; None: the one who asks has it.
        why: Why it is refused.
    """

    id: int
    kind: Literal["source", "namespace", "file", "directory", "installed", "absent", "refused"]
    path: str = ""
    places: Sequence[str] | None = None
    digest: str = ""
    size: int = 0
    data: bytes | None = None
    why: str = ""


def digest_of(data: bytes) -> str:
    """Return the digest by which texts are compared."""
    return hashlib.sha256(data).hexdigest()


def digest_of_file(path: str) -> str:
    """Return the digest of a file; "": it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return digest_of(file.read())
    return ""
