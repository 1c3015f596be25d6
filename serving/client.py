"""Predictions of a served model, from a frame and as a frame."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

from serving.connection.address import Tls, parse_address
from serving.connection.channel import MOST_RETRIES
from serving.connection.grpc_connection import GrpcConnection
from serving.connection.http_connection import HttpConnection
from serving.connection.http_messages import HEADER_LENGTH
from serving.connection.shared_memory import Regions, is_forgotten, time_left
from serving.connection.tensors import Inference, WireTensor, encode_tensors
from serving.contract import Contract, Contracts, read_contract
from serving.errors import ClientError
from serving.exchange import (
    MOST_ATTEMPTS,
    UNFIT,
    is_of_another,
    of_another_contract,
    of_one_version,
    of_other_versions,
    to_requests,
    to_table,
)
from serving.seconds import expect_seconds
from workflow.schema.column import Array

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# What HTTP and gRPC both send unchanged.
_HEADER_NAME, _HEADER_VALUE = re.compile(r"[A-Za-z0-9_.-]+"), re.compile(r"[ -~]*")
# With another length or encoding than that of the body a server waits for the rest of the request.
_OF_THE_BODY = ("content-length", "content-encoding", "transfer-encoding", HEADER_LENGTH.lower())


class EnsembleClient:
    """A connection to one model on a Triton server. Thread-safe.

    A forked process may use its parent's client, over its own connections. With gRPC the new process
    ends if other threads were in a call during the fork; HTTP, and starting processes with "spawn", do
    not have this defect.

    Args:
        url: the server's address: "127.0.0.1:8001" or "grpc://127.0.0.1:8001" for gRPC,
            "http://127.0.0.1:8000" for HTTP, "grpcs://" or "https://" for the same over TLS.
        model_name: the model.
        model_version: its version; "" lets the server choose, which takes the latest.
        timeout: seconds for each request, including its retries.
        headers: sent with every request, for example {"authorization": "Bearer ..."}; over HTTP with
            {"accept-encoding": "gzip"} the server compresses its answers.
        tls: the certificates, for "grpcs://" and "https://".
        retries: how often a request is sent again, after growing pauses, if the server could not be
            reached or was not available; 0 to 4. An inference has no side effects, so repeating it is
            safe.
        shared_memory: whether tensors go to the server in shared memory, which pays off from a few
            thousand rows on. The server must be on this machine and allow it; a `TritonServer` needs
            its `admin_headers` for that.

    Raises:
        ServerUnavailableError: no connection.
        UnknownModelError: no such model, or no such version of it.
        DeadlineExceededError: no answer in time.
        ClientError: invalid settings, or a model whose config the client cannot read.

    Example:
        >>> with EnsembleClient("127.0.0.1:8001", "movielens") as client:  # doctest: +SKIP
        ...     client.predict({"userId": [1, 2], "genres": [["Drama"], None]})["rating"].shape
        (2, 1)
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        *,
        model_version: int | str = "",
        timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        retries: int = MOST_RETRIES,
        shared_memory: bool = False,
    ) -> None:
        self.url = url
        self.model_name = model_name
        self.model_version = str(model_version)
        self.timeout = expect_timeout(timeout)
        expect_retries(retries)
        expect_headers(headers or {})
        address = parse_address(url, tls)
        connect = HttpConnection if address.scheme.startswith("http") else GrpcConnection
        self._connection = connect(address, headers or {}, retries)
        self._memory = Regions(self._connection) if shared_memory else None
        try:
            config = self._connection.config(model_name, self.model_version, timeout)
            self._contracts = Contracts(read_contract(config))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"EnsembleClient({self.url!r}, {self.model_name!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a connection belongs to a process.

        Raises:
            ClientError: always.
        """
        raise not_copied(self)

    @property
    def contract(self) -> Contract:
        """The model's inputs, outputs, label columns and generation.

        `predict` reads it again when another version has answered, or a table does not fit, as after
        the publication of a version with other inputs.
        """
        return self._contracts.current

    @overload
    def predict(self, data: pl.DataFrame, *, timeout: float | None = None) -> pl.DataFrame: ...
    @overload
    def predict(
        self, data: Mapping[str, Any], *, timeout: float | None = None
    ) -> dict[str, Array]: ...
    @overload
    def predict(self, data: pd.DataFrame, *, timeout: float | None = None) -> pd.DataFrame: ...

    def predict(self, data: Any, *, timeout: float | None = None) -> Any:
        """Predict for every row of a table.

        Values are converted only without loss; otherwise the error names the column. In pandas NaN,
        NA and None are null, in Polars null, in lists None. Dates and times become microseconds
        since 1970-01-01 if the model takes those. Columns that the model does not take are ignored.
        A table with more rows than the model takes at once is sent in several requests, one after
        another, and so is one whose padded lists would consist mostly of padding. If a new version of
        the model comes between them, the rows that the old one has answered are sent again.

        Args:
            data: a Polars frame, a pandas frame, or a dict of arrays (N,), (N, 1), of lists, or of
                lists of lists for list columns. Without rows no request is sent.
            timeout: seconds for each request; by default the client's.

        Returns:
            The same kind of table with a column for each of the model's outputs: a Polars frame, a
            pandas frame with the index of `data`, or a dict of arrays (N, k), with null codes for
            nulls.

        Raises:
            ColumnError: columns are missing, or have different lengths.
            DtypeError: a column holds values that the model does not take.
            InvalidRequestError: the server refused.
            ServerUnavailableError: no connection, or a busy server, after the retries; or versions of
                the model that change during the call.
            DeadlineExceededError: no answer in time.
            ClientError: any other error of the server.
        """
        return self._answer(data, timeout)[0]

    def raw(
        self, tensors: Mapping[str, Array], *, timeout: float | None = None
    ) -> dict[str, Array]:
        """Send tensors unchanged, and return the output tensors unchanged.

        Args:
            tensors: by input name; strings as an object array of `bytes` or `str`.
            timeout: seconds; by default the client's.

        Raises:
            DtypeError: a dtype that Triton does not know.
            ClientError: the server refused, or did not answer.
        """
        return self._ask(tensors, timeout).tensors

    def for_model(self, name: str, model_version: int | str = "") -> EnsembleClient:
        """A client for another model of the same server, over the same connection.

        Closing either closes the connection.

        Args:
            name: the model.
            model_version: its version; by default the newest one.

        Raises:
            ClientError: as the constructor.
        """
        other = object.__new__(EnsembleClient)
        vars(other).update(vars(self), model_name=name, model_version=str(model_version))
        other._contracts = Contracts(read_contract(other.config()))
        return other

    def config(self, model: str | None = None) -> Any:
        """The config of a model as the server has it, a `ModelConfig` message of tritonclient.

        Args:
            model: a model of the same server, such as a step of an ensemble; by default this client's.

        Raises:
            ClientError: there is no such model, or no answer.

        Example:
            >>> client.config().max_batch_size  # doctest: +SKIP
            1024
        """
        named, version = (model, "") if model else (self.model_name, self.model_version)
        return self._connection.config(named, version, self.timeout)

    def close(self) -> None:
        """Close the connection and free shared memory. Further calls do nothing.

        With shared memory requests under way are waited for, at most 5 seconds; otherwise over gRPC, and
        under asyncio, they raise a ClientError.
        """
        if self._memory is not None:
            self._memory.close()
        self._connection.close()

    def _answer(self, data: Any, timeout: float | None = None) -> tuple[Any, str]:
        """The predictions for a table, and the version that has made them; "" without rows."""
        for more in reversed(range(MOST_ATTEMPTS)):
            contract = self.contract
            try:
                answer, version = self._predict(contract, data, timeout)
            except UNFIT:
                # Another version may take other inputs.
                if not (self._renewed(contract, timeout) and more):
                    raise
                continue
            if not is_of_another(version, contract, self.model_version):
                return answer, version
            # Another version may have read other values: a code for null is a number to one without nulls.
            self._renewed(contract, timeout)
            known = self._contracts.of(version)
            self._contracts = known
            if known.current.version == version and known.current.is_read_as(contract):
                return answer, version
        raise of_another_contract(version, contract)

    def _predict(self, contract: Contract, data: Any, timeout: float | None) -> tuple[Any, str]:
        requests = to_requests(contract, data)
        answers = [self._ask(request, timeout) for request in requests]
        for place in of_other_versions(answers):
            answers[place] = self._ask(requests[place], timeout)
        version = answers[-1].version if answers else ""
        return to_table(contract, data, of_one_version(answers)), version

    def _ask(self, tensors: Mapping[str, Array], timeout: float | None) -> Inference:
        seconds = self._seconds(timeout)
        if self._memory is None:
            return self._infer(encode_tensors(tensors), seconds)
        deadline = time.monotonic() + seconds
        try:
            return self._ask_in(self._memory, tensors, deadline)
        except ClientError as error:
            if not is_forgotten(error):
                raise
        return self._ask_in(self._memory, tensors, deadline)

    def _ask_in(self, memory: Regions, tensors: Mapping[str, Array], deadline: float) -> Inference:
        with memory.holding(tensors, deadline) as encoded:
            return self._infer(encoded, time_left(deadline))

    def _renewed(self, before: Contract, timeout: float | None) -> bool:
        """Read the contract again; whether it has changed. Errors are those of the request."""
        with suppress(ClientError):
            config = self._connection.config(
                self.model_name, self.model_version, self._seconds(timeout)
            )
            self._contracts = self._contracts.with_current(read_contract(config))
        return self.contract != before

    def _infer(self, tensors: Sequence[WireTensor], timeout: float) -> Inference:
        return self._connection.infer(self.model_name, self.model_version, tensors, timeout)

    def _seconds(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else expect_timeout(timeout)

    def __enter__(self) -> Self:
        """The connection itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()


def current_contract(client: EnsembleClient) -> Contract:
    """The contract of the version that answers now: one that was published since may take other columns."""
    client._renewed(client.contract, None)  # noqa: SLF001 - the module's own class
    return client.contract


def not_copied(client: Any) -> ClientError:
    """The error for a client that is pickled or copied; the caller raises it."""
    return ClientError(
        "INVALID_INPUT",
        f"A client cannot be pickled or copied, because of its connection. Received: {client!r}. "
        "Make one in each process, as in the initializer of a pool; threads may share one.",
    )


def expect_timeout(timeout: Any) -> float:
    """Check a time for a request.

    Raises:
        ClientError: it is not a number above 0 and up to 1e9.
    """
    return expect_seconds("timeout", timeout, partial(ClientError, "INVALID_INPUT"))


def expect_retries(retries: int) -> None:
    """Check a number of retries.

    Raises:
        ClientError: an invalid number.
    """
    if type(retries) is not int or not 0 <= retries <= MOST_RETRIES:
        raise ClientError(
            "INVALID_INPUT",
            f"Expected retries from 0 to {MOST_RETRIES}. Received: {retries!r}.",
        )


def expect_headers(headers: Mapping[str, str]) -> None:
    """Check names and values of headers.

    Raises:
        ClientError: one that cannot be sent; the value, which may be secret, is not in the text.
    """
    if not isinstance(headers, Mapping):
        raise ClientError(
            "INVALID_INPUT",
            "Expected headers as a dictionary of name -> value. Received: "
            f'{type(headers).__name__}. Write {{"authorization": token}}.',
        )
    for name, value in headers.items():
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
            raise ClientError(
                "INVALID_INPUT",
                f"Expected names of headers of letters, digits, -, _ and '.'. Received: {name!r:.100}.",
            )
        if name.lower() in _OF_THE_BODY or name.lower().endswith("-bin"):
            raise ClientError(
                "INVALID_INPUT",
                "Expected headers that do not describe the body of a request, and whose names do not end in "
                f"-bin, which for gRPC are bytes. Received: {name!r}. Leave it out.",
            )
        if not (isinstance(value, str) and _HEADER_VALUE.fullmatch(value)):
            received = "other characters" if isinstance(value, str) else type(value).__name__
            raise ClientError(
                "INVALID_INPUT",
                f"Expected the header {name!r} as text of printable ASCII. Received: {received}. "
                "Encode it, as in base64.",
            )
