"""The step of an ensemble that finds the items nearest to a vector in a FAISS index.

An export copies this file into the model's version folder, beside the index, the items' ids and the
files that it imports. Requests are joined and answered as by our backends. Numpy and faiss only, Python
3.10.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# A repository holds what was exported and no byte code, which would be run instead of it.
sys.dont_write_bytecode = True
shutil.rmtree(HERE / "__pycache__", ignore_errors=True)

try:
    import faiss
except ModuleNotFoundError as error:
    raise RuntimeError(
        "Expected the package faiss in the server's Python: pip install faiss-cpu. Received: none."
    ) from error

if TYPE_CHECKING:
    from triton_models.backends.joint_calls import Tensors
    from triton_models.backends.model_backend import ModelBackend, TensorType
    from triton_models.nearest_items.search import ItemSearch
else:  # In the server these files are beside this one, outside any package.
    from joint_calls import Tensors
    from model_backend import ModelBackend, TensorType
    from search import ItemSearch


class TritonPythonModel(ModelBackend):
    """A search behind a tower. Triton requires this class name."""

    def load(self, path: Path, config: Mapping[str, Any], device: int | None) -> None:  # noqa: ARG002
        """Open the index.

        Raises:
            RuntimeError: FAISS cannot read it.
        """
        # An instance uses one core, like instances of other steps. Further instances share the index.
        faiss.omp_set_num_threads(1)
        self._search = ItemSearch(path)
        self._k = int(config["output"][0]["dims"][-1])
        kind = "TYPE_STRING" if self._search.is_text else "TYPE_INT64"
        vector = config["input"][0]["name"]
        self.inputs = {vector: TensorType("TYPE_FP32", (-1, self._search.width))}
        self.outputs = {
            "item": TensorType(kind, (-1, self._k)),
            "score": TensorType("TYPE_FP32", (-1, self._k)),
        }

    def call(self, tensors: Tensors) -> Tensors:
        """Search for all rows at once."""
        (vectors,) = tensors.values()
        return self._search.answer(vectors, self._k)
