"""The kinds of frames, and the layout of their headers.

Data links (caller to actor, one link per pair; both directions in the order sent)::

    CALL    [call id, endpoint, view, lengths, flags]     payload: pickled (args, kwargs)
    INIT    [call id, class label, view, lengths]         payload: pickled (set-up, class, args, kwargs, creator)
            ... + [digest, label]                         of a singleton: it may have been built already, from the same
    STOP    [call id, why, grace or nil, spawn id]        end the actor after what was sent before
    CUT     [call id, actor]                              the grace of a STOP is over: end what runs
    CANCEL  [call id, interrupt, actor]                   the answer of a CALL is not wanted any more
    PORT    [number, port, lengths, is error, ack, watch] payload: pickled value, or exception, for a port
    RESULT  [call id, lengths or nil]                     payload: pickled value; nil stands for None
    ERROR   [call id, error, lengths, kind]               payload: the pickled exception, may be missing
    STATE   [0, stopped]                                  to every caller: the actor was stopped, or begins again

``view`` is msgpack of ``[labels, offset, sizes, strides, spawn id]``: one encoding serves all ranks, each finds its own
point. The spawn id is that of the INIT: if this is refused as the name is taken, so are its calls; b"" is that of none.
``lengths`` are those of the pickle and of its out-of-band buffers, see `meshrt.wire.codec`.

With the flag `STORED` in its kind, the header of CALL, INIT or RESULT has one more element at its end: for each store
that has them ``[loans, pids or nil]``, which says where the segments are that stand for some of the lengths, and which
processes they were shared with (`meshrt.store`).

Control links (root, agent, rank; terminals to the root; processes to the store of their host)::

    CONTROL [mesh id, rank] or nil                        payload: msgpack map, never a pickle (`meshrt.wire.control`)

    PIECE   number of a question                          payload: bytes of a segment (a store to that of another host)

The address is the receiver (root to rank) or the sender (rank to root) of a message; nil is the peer itself.
"""

from __future__ import annotations

__all__ = [
    "ABORTED",
    "CALL",
    "CANCEL",
    "CANCELS",
    "CONTROL",
    "CUT",
    "ERROR",
    "INIT",
    "NO_ERROR",
    "NO_REPLY",
    "PIECE",
    "PORT",
    "PORTS",
    "RESULT",
    "STATE",
    "STOP",
    "STOPPED_ITSELF",
    "STORED",
    "URGENT",
]

CALL = 1
INIT = 2
STOP = 3
RESULT = 4
ERROR = 5
STATE = 6
CANCEL = 7
PORT = 8
CUT = 9
CONTROL = 16
PIECE = 17

#: Flag in the kind of a CALL, an INIT or a RESULT: parts of its payload are in shared memory.
STORED = 0x40

#: The error of an ERROR that is described by its kind alone.
NO_ERROR = [["", "", "", [], ""]]

#: The type of the error of an ERROR whose kind is "ended" (before the call ran) or "ending" (in it): the actor has
#: ended itself, by `abort` or by `stop`. Its message is the reason.
ABORTED = "meshrt.errors.ActorAborted"
STOPPED_ITSELF = "meshrt.errors.MeshStopped"

#: A caller that names this as its actor sends each CANCEL on that link, too, and each CUT (`meshrt.actor.cancelling`).
CANCELS = "?"
#: A process that names this as the actor sends to ports of the other one (`meshrt.actor.inboxes`).
PORTS = "."
#: A caller that names its actor with this behind it has urgent calls on that link: they are served before others.
URGENT = "!"

#: Flag of a CALL that is not answered (`broadcast`).
NO_REPLY = 1
