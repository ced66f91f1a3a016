"""The invitation in torch's store, where torchrun, or a PyTorchJob, has the hosts find each other.

torch's store asks nobody for a proof: whoever reaches its port can read it. A secret file keeps the secret out of it.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from meshrt.engine.launch.launchers import Launched

__all__ = ["TorchStore"]

#: Seconds for one question.
_SECONDS = 5.0


class TorchStore:
    """A key in the store.

    Args:
        host, port: Of the store.
        serves: Whether it is to be made here.
        key: A launcher that starts its processes again has other keys each time.
    """

    def __init__(self, host: str, port: int, key: str, *, serves: bool) -> None:
        self._host = host
        self._port = port
        self._serves = serves
        self._key = key
        #: torch's; torch has types of its own.
        self._store: Any = None

    @classmethod
    def of(cls, found: Launched, variables: Mapping[str, str]) -> TorchStore:
        """Return the store of a job. torchrun serves it itself; otherwise host 0 does."""
        served = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        key = f"meshrt/launch/{variables.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        port = int(variables["MASTER_PORT"])
        return cls(variables["MASTER_ADDR"], port, key, serves=found.index == 0 and not served)

    def publish(self, text: bytes) -> None:
        """Write it."""
        with _errors():
            self._open().set(self._key, text.hex())

    def fetch(self) -> bytes | None:
        """Read it; None: it is not there."""
        with _errors():
            store = self._open()
            return bytes.fromhex(store.get(self._key).decode()) if store.check([self._key]) else None

    def leave(self) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the store, and its port if it was served here."""
        self._store = None

    def _open(self) -> Any:
        if self._store is None:
            store = importlib.import_module("torch.distributed").TCPStore  # optional: torch
            seconds = timedelta(seconds=_SECONDS)
            self._store = store(self._host, self._port, None, self._serves, timeout=seconds, wait_for_workers=False)
        return self._store

    def __str__(self) -> str:
        return f"torch's store at {self._host}:{self._port}"


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's own are of this class
        why = str(error).splitlines() or [type(error).__name__]
        raise ConnectionError(why[0]) from None
