"""Requests of the server's owner: health, and loading and unloading of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient import grpc
from tritonclient.utils import (
    InferenceServerException,
    np_to_triton_dtype,
    triton_to_np_dtype,
)

from serving.connection.channel import MAX_MESSAGE
from serving.embedded.flags import GRPC_ADMIN_HEADER
from triton_models.healthcheck import BUSY, REQUEST_ID, ProbeError, expect_answer
from workflow.schema.column import Array

# Triton's words for a model that is not in the folder that it reads.
NOT_FOUND = "failed to poll from model repository"
# The remedies for refusals, by words of Triton's texts.
_REMEDIES = {
    "is restricted": (
        "The admin key, in the shell the environment variable TRITON_ADMIN_KEY, is not the one with "
        "which the server was started"
    ),
    "explicit model load / unload is not allowed": (
        "Start the server with --model-control-mode=explicit, as `ensemble serve` and "
        "docker-compose.yml do"
    ),
    NOT_FOUND: (
        "It finds no such model with a valid config: perhaps it reads another folder than this process"
    ),
}


class Administration:
    """The administrative side of a running server, over gRPC.

    Args:
        url: the server's gRPC address.
        admin_key: the key that the server was started with.
    """

    def __init__(self, url: str, admin_key: str) -> None:
        self._url = url
        self._headers = {GRPC_ADMIN_HEADER: admin_key}

    def server_name(self, timeout: float) -> str:
        """The name that the server was started with; distinguishes ours from others on the port.

        Raises:
            ProbeError: no answer.
        """
        return str(self._ask(lambda c: c.get_server_metadata(client_timeout=timeout).name))

    def probe(self, model: str, timeout: float) -> None:
        """Check that a model answers one row.

        Raises:
            ProbeError: as `expect_answer`.
        """
        expect_answer(self, model, timeout)

    def load(self, model: str, timeout: float, config: str | None = None) -> None:
        """Load a model.

        Args:
            model: its name.
            timeout: seconds.
            config: its config as JSON; by default that of the repository.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        self._ask(
            lambda c: c.load_model(model, self._headers, config=config, client_timeout=timeout)
        )

    def unload(self, model: str, timeout: float, *, dependents: bool = True) -> None:
        """Unload a model, by default with the steps of an ensemble that no other one needs.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        self._ask(
            lambda c: c.unload_model(
                model, self._headers, unload_dependents=dependents, client_timeout=timeout
            )
        )

    def versions(self, model: str, timeout: float) -> dict[int, str]:
        """The states of a model's versions, those included that the server has unloaded.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        # A model that was never loaded has an entry without a version.
        return {
            int(one.version): one.state
            for one in self._index(timeout)
            if one.name == model and one.version
        }

    def loaded(self, timeout: float) -> set[str]:
        """The models that the server has loaded, with steps of ensembles.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        return {one.name for one in self._index(timeout) if one.state == "READY"}

    def _index(self, timeout: float) -> Any:
        return self._ask(
            lambda c: c.get_model_repository_index(self._headers, client_timeout=timeout)
        ).models

    def config(self, model: str, timeout: float, version: str = "") -> Mapping[str, Any]:
        """See `triton_models.healthcheck.ProbeConnection`."""
        answer = self._ask(
            lambda c: c.get_model_config(model, version, as_json=True, client_timeout=timeout)
        )
        config: Mapping[str, Any] = answer["config"]
        return config

    def infer(
        self, model: str, inputs: Sequence[Mapping[str, Any]], timeout: float, version: str = ""
    ) -> Mapping[str, bool]:
        """See `triton_models.healthcheck.ProbeConnection`."""
        answers = self._infer(model, [_tensor(**tensor) for tensor in inputs], timeout, version)
        return {name: tensor is not None for name, tensor in answers.items()}

    def answer(self, model: str, tensors: Mapping[str, Array], timeout: float) -> dict[str, Array]:
        """The output tensors of a request that no metric of a model's inputs counts.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        inputs = [
            grpc.InferInput(
                name, [*tensor.shape], np_to_triton_dtype(tensor.dtype)
            ).set_data_from_numpy(tensor)
            for name, tensor in tensors.items()
        ]
        return self._infer(model, inputs, timeout)

    def answered(self, model: str, timeout: float, version: str = "") -> int:
        """See `triton_models.healthcheck.ProbeConnection`."""
        answer = self._ask(
            lambda c: c.get_inference_statistics(model, version, client_timeout=timeout)
        )
        return sum(stats.inference_stats.success.count for stats in answer.model_stats)

    def _infer(
        self, model: str, inputs: list[grpc.InferInput], timeout: float, version: str = ""
    ) -> dict[str, Any]:
        answer = self._ask(
            lambda c: c.infer(model, inputs, version, request_id=REQUEST_ID, client_timeout=timeout)
        )
        return {o.name: answer.as_numpy(o.name) for o in answer.get_response().outputs}

    def _ask(self, request: Callable[[grpc.InferenceServerClient], Any]) -> Any:
        # The server is local, so a proxy in the environment does not apply.
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", MAX_MESSAGE)]
        with grpc.InferenceServerClient(self._url, channel_args=options) as client:
            try:
                return request(client)
            except InferenceServerException as error:
                text, code = str(error.message()), str(error.status())
                is_silent = "DEADLINE" in code or any(reason in text for reason in BUSY)
                code = code.removeprefix("StatusCode.")
                remedies = [f". {remedy}" for words, remedy in _REMEDIES.items() if words in text]
                raise ProbeError(
                    f"{self._url} answered {code}: {''.join([text, *remedies])}",
                    is_silent=is_silent,
                ) from error


def _tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> grpc.InferInput:
    tensor = grpc.InferInput(name, shape, datatype)
    values = np.array(data, triton_to_np_dtype(datatype)).reshape(shape)
    return tensor.set_data_from_numpy(values)
