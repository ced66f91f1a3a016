"""The protocol without I/O: frames, messages, pickles, handshake. Bytes in, events out; nothing here owns a socket."""

__all__: list[str] = []
