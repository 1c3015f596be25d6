"""What can go wrong between a caller and a server."""

from __future__ import annotations


class ServerError(RuntimeError):
    """A server that could not be started, or stopped on its own; the text ends with its log."""


class ClientError(Exception):
    """A request that was not sent, or that the server refused.

    Attributes:
        code: the gRPC status that the server answered with, for example "INVALID_ARGUMENT" or
            "UNAVAILABLE"; "INVALID_INPUT" when the data was refused before it was sent.
        message: what was expected, what was received, and how to mend it.

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
