"""Errors between a caller and a server."""

from __future__ import annotations

import re


class ServerError(RuntimeError):
    """A server that could not be started, or stopped on its own; the text ends with its log."""


class ClientError(Exception):
    """A request that was not sent, or that the server refused.

    Attributes:
        code: the gRPC status of the server's answer, for example "INVALID_ARGUMENT" or
            "UNAVAILABLE"; "INVALID_INPUT" if the data was refused before it was sent.
        message: what was expected, what was received, and how to fix it.

    Example:
        >>> str(ClientError("INVALID_INPUT", "Expected the column userId."))
        'INVALID_INPUT: Expected the column userId.'
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ColumnError(ClientError):
    """Columns that are missing or do not fit together; nothing was sent."""


class DtypeError(ClientError):
    """A column whose values the model does not take; nothing was sent."""


class InvalidRequestError(ClientError):
    """A request that the server read and refused."""


class UnknownModelError(ClientError):
    """A model, or a version of it, that the server does not have."""


class ServerUnavailableError(ClientError):
    """No server at the address, or one that takes no requests now. A retry may help."""


class DeadlineExceededError(ClientError):
    """No answer within the time-out; the server may have processed the request nevertheless."""


_KINDS = {
    "INVALID_ARGUMENT": InvalidRequestError,
    "NOT_FOUND": UnknownModelError,
    "UNAVAILABLE": ServerUnavailableError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
}
_ADVICE = {
    "NOT_FOUND": (
        "Check the name and the version, and that the server has loaded the model. An ensemble is "
        "served in its newest version alone."
    ),
    "UNAVAILABLE": (
        "Check that the server runs at {url} and is ready. By default gRPC is on port 8001, and "
        "HTTP, whose address begins with http://, on port 8000."
    ),
    "DEADLINE_EXCEEDED": "Raise `timeout`, send fewer rows at once, or see what keeps {url} busy or out of reach.",
    "UNAUTHENTICATED": (
        "Pass the credentials that the server requires in `headers`, in the shell with --header, or "
        "in TRITON_ADMIN_KEY for --shared-memory."
    ),
}
# Messages of a server that runs, but is overloaded.
_BUSY = {
    "Exceeds maximum queue size": "max_queue_size",
    "Request timeout expired": "queue_timeout_us",
}
# Message of a server that runs, but has unloaded a version, or is still loading it.
_NOT_READY = "is not at ready state"
_UNKNOWN_MODEL = "Request for unknown model"
# Message of a server whose process of a Python model has ended, or has not run for a second.
LOST_PROCESS = re.compile(r"Stub process .*is not healthy")
# The whole message for calls under way when a server stops.
_CANCELLED = "CANCELLED"


def refusal(code: str, message: str, url: str, *, was_served: bool = False) -> ClientError:
    """The error for an answer of a server, or a failure to reach it; the caller raises it.

    Args:
        code: a gRPC status.
        message: its text.
        url: the server's address.
        was_served: whether the server has had the model. Then an unknown model is one that it is
            unloading, or loading again, and asking again may help.

    Example:
        >>> type(refusal("UNAVAILABLE", "Connection refused", "127.0.0.1:8001")).__name__
        'ServerUnavailableError'
    """
    text = message.strip()
    if was_served and (_UNKNOWN_MODEL in text or text == _CANCELLED):
        code = "UNAVAILABLE"
    if LOST_PROCESS.search(text):
        code = "UNAVAILABLE"
    if advice := _advice(code, text, url):
        text = f"{text.removesuffix('.')}. {advice}"
    return _KINDS.get(code, ClientError)(code, text)


def _advice(code: str, text: str, url: str) -> str:
    """Advice on an error; "" if the text contains it."""
    for said, option in _BUSY.items():
        if code == "UNAVAILABLE" and said in text:
            return (
                f"The server at {url} is busy. Send fewer requests at once, send this one again "
                f"later, which `retries` does, or export with a larger `{option}`."
            )
    if code == "UNAVAILABLE" and (_UNKNOWN_MODEL in text or text == _CANCELLED):
        return (
            f"The server at {url} had this model before: it stops, or loads the model again. Send the "
            "request again later, which `retries` does."
        )
    if LOST_PROCESS.search(text):
        return (
            f"The server at {url} has lost a process of the model: it has crashed, which the server's log "
            "shows, or the machine did not run it for a second. Start the server again, which "
            "`TritonServer(heal=True)` does by itself, before the next request: that one may end the server."
        )
    if code == "UNAVAILABLE" and _NOT_READY in text:
        return (
            f"The server at {url} runs, but has not loaded this version, or not yet. An ensemble "
            "is served in its newest version alone; leave out `model_version` to ask for that."
        )
    return _ADVICE.get(code, "").format(url=url)
