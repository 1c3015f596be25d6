"""Asking a served model for predictions, from a table and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl
from tritonclient import grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from serving.contract import Contract, read_contract
from serving.errors import ClientError
from serving.inputs.table import is_pandas, to_columns
from serving.outputs import to_arrays, to_pandas, to_polars
from workflow.expressions.column import Array
from workflow.schema import SchemaError
from workflow.wire import encode

# Triton's own limit; gRPC's default of 4 MiB is a batch of a few thousand rows.
MAX_MESSAGE = 2**31 - 1


class EnsembleClient:
    """A connection to one model on a Triton server, over gRPC. Threads may share it.

    Args:
        url: the server's gRPC address, for example "127.0.0.1:8001".
        model_name: the model.
        model_version: its version; "" lets the server choose, which is the latest.
        timeout: seconds for each request.

    Raises:
        ClientError: no connection, no such model, or a model whose config is not ours to read.

    Example:
        >>> with EnsembleClient("127.0.0.1:8001", "movielens") as client:  # doctest: +SKIP
        ...     client.predict({"userId": [1, 2], "genres": [["Drama"], None]})["rating"].shape
        (2, 1)
    """

    def __init__(
        self, url: str, model_name: str, *, model_version: str = "", timeout: float = 60.0
    ) -> None:
        self.url = url
        self.model_name = model_name
        self.model_version = model_version
        self.timeout = timeout
        options = [
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
        ]
        if url.startswith(("127.0.0.1", "localhost", "[::1]")):
            # A proxy of the environment is for the world outside.
            options.append(("grpc.enable_http_proxy", 0))
        self._client = grpc.InferenceServerClient(url, channel_args=options)
        try:
            self._contract = self._read_contract()
        except BaseException:
            self.close()
            raise

    @property
    def contract(self) -> Contract:
        """The model's inputs, outputs, label columns and generation."""
        return self._contract

    def predict(self, data: Any) -> Any:
        """Predict for every row of a table.

        Values are converted only where nothing is lost; otherwise the error names the column. In
        pandas NaN, NA and None are null, in Polars null, in lists None. Columns that the model
        does not take are left out.

        Args:
            data: a Polars frame, a pandas frame, or a dict of arrays (N,), (N, 1), of lists, or
                of lists of lists for list columns. No rows are no request.

        Returns:
            The same kind of table with a column for each of the model's outputs: a Polars frame,
            a pandas frame with the index of `data`, or a dict of arrays (N, k), where a null is
            its code on the wire.

        Raises:
            ClientError: the data does not fit, or the server refused.
        """
        columns = to_columns(self._contract.inputs, data)
        rows = {column.rows for column in columns.values()}
        if rows == {0}:
            tensors = self._contract.no_rows()
        else:
            request: dict[str, Array] = {}
            try:
                for column in self._contract.inputs:
                    request.update(encode(column, columns[column.name]))
            except (SchemaError, UnicodeEncodeError) as error:
                raise ClientError("INVALID_INPUT", str(error)) from error
            tensors = self.raw(request)
        if isinstance(data, pl.DataFrame):
            return to_polars(self._contract.outputs, tensors)
        if is_pandas(data):
            return to_pandas(self._contract.outputs, tensors, data.index)
        return to_arrays(self._contract.outputs, tensors)

    def raw(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Send tensors as they are, and return the output tensors as they come.

        Args:
            tensors: by input name; strings as an object array of `bytes` or `str`.

        Raises:
            ClientError: a dtype that Triton does not know, or the server refused.
        """
        inputs = []
        for name, tensor in tensors.items():
            datatype = np_to_triton_dtype(tensor.dtype)
            if datatype is None:
                raise ClientError(
                    "INVALID_INPUT",
                    f"Input {name!r}: expected a dtype of Triton. Received: {tensor.dtype}.",
                )
            inputs.append(grpc.InferInput(name, list(tensor.shape), datatype))
            inputs[-1].set_data_from_numpy(np.ascontiguousarray(tensor))
        try:
            result = self._client.infer(
                self.model_name, inputs, self.model_version, client_timeout=self.timeout
            )
        except InferenceServerException as error:
            raise _refused(error) from error
        return {
            output.name: result.as_numpy(output.name) for output in result.get_response().outputs
        }

    def close(self) -> None:
        """Close the connection. Closing it twice does nothing."""
        self._client.close()

    def _read_contract(self) -> Contract:
        try:
            answer = self._client.get_model_config(
                self.model_name, self.model_version, client_timeout=self.timeout
            )
        except InferenceServerException as error:
            raise _refused(error) from error
        return read_contract(answer.config)

    def __enter__(self) -> Self:
        """The connection itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()


def _refused(error: InferenceServerException) -> ClientError:
    """The server's error, or gRPC's."""
    status = str(error.status() or "UNKNOWN").removeprefix("StatusCode.")
    return ClientError(status, str(error.message()))
