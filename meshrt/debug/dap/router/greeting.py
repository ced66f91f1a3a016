"""What an IDE and an adapter say before the request ``attach``: ``initialize``, above all, and its answer. Pure."""

from __future__ import annotations

import json

from meshrt.debug.dap.wire import Fields, Message, arguments_of, failure, response
from meshrt.errors import UsageError

__all__ = ["CAPABILITIES", "answer_before_attach"]

#: What debugpy's engine can do in every rank, and the mesh with it. It must be said before there is an engine to ask;
#: a test compares it. Not among them: to end a rank, which is its program's business.
CAPABILITIES: Fields = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "exceptionBreakpointFilters": [
        {"filter": "raised", "label": "Raised Exceptions", "default": False},
        {"filter": "uncaught", "label": "Uncaught Exceptions", "default": True},
        {"filter": "userUnhandled", "label": "User Uncaught Exceptions", "default": False},
    ],
    "supportsSetVariable": True,
    "supportsGotoTargetsRequest": True,
    "supportsStepInTargetsRequest": True,
    "supportsCompletionsRequest": True,
    "supportsModulesRequest": True,
    "supportsExceptionOptions": True,
    "supportsValueFormattingOptions": True,
    "supportsExceptionInfoRequest": True,
    "supportsDelayedStackTraceLoading": True,
    "supportsLogPoints": True,
    "supportsSetExpression": True,
    "supportsClipboardContext": True,
    "supportsDebuggerProperties": True,
}
#: What an IDE may say of how it counts and names files -> how debugpy's engine does it: the defaults of the protocol.
_CONVENTIONS = {"pathFormat": "path", "linesStartAt1": True, "columnsStartAt1": True}


def answer_before_attach(request: Message) -> tuple[Message, bool]:
    """Return the answer to a request that comes before ``attach``, and whether the session goes on."""
    match request["command"]:
        case "initialize":
            try:
                _check_ide(arguments_of(request))
            except UsageError as error:
                return failure(request, str(error)), False
            return response(request, CAPABILITIES), True
        case "disconnect":
            return response(request), False
        case "launch":
            return failure(request, 'launch is not supported; set "request": "attach" in the entry'), True
        case command:
            return failure(request, f"{command} was sent before attach"), True


def _check_ide(arguments: Fields) -> None:
    """Check an ``initialize`` request. Raises UsageError: the IDE counts, or names files, as no engine does."""
    for key, expected in _CONVENTIONS.items():
        value = arguments.get(key)
        if value is not None and value != expected:
            said, wanted = json.dumps(value), json.dumps(expected)
            raise UsageError(f"initialize: {key} is {said}, which meshrt dap does not support; expected {wanted}")
