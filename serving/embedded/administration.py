"""Requests that only the server's owner may make: loading and unloading of models."""

from __future__ import annotations

from serving.embedded.flags import ADMIN_HEADER
from triton_models.healthcheck import fetch


class Administration:
    """The administrative side of a running server, over HTTP.

    Args:
        url: the server's HTTP address.
        admin_key: the key that the server was started with.
    """

    def __init__(self, url: str, admin_key: str) -> None:
        self._url = url
        self._headers = {ADMIN_HEADER: admin_key}

    def server_name(self, timeout: float) -> str:
        """The name that the server was started with; distinguishes ours from others on the port.

        Raises:
            ProbeError: no answer.
        """
        return str(fetch(f"{self._url}/v2", timeout=timeout).get("name"))

    def load(self, model: str, timeout: float) -> None:
        """Load a model.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        self._repository(f"models/{model}/load", {}, timeout)

    def unload(self, model: str, timeout: float) -> None:
        """Unload a model, with the steps of an ensemble.

        Raises:
            ProbeError: the server refused, or did not answer.
        """
        self._repository(
            f"models/{model}/unload", {"parameters": {"unload_dependents": True}}, timeout
        )

    def _repository(self, path: str, body: dict[str, object], timeout: float) -> None:
        fetch(f"{self._url}/v2/repository/{path}", body, timeout=timeout, headers=self._headers)
