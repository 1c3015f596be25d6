"""Feed Keras, PyTorch or JAX from parquet: streaming, shuffled, resumable.

Example:
    >>> from loader import KerasSequenceLoader
    >>> train = KerasSequenceLoader(  # doctest: +SKIP
    ...     "train/*.parquet", batch_size=65536, label_names=["rating"], cat_names=["userId"]
    ... )
    >>> model.fit(train)  # doctest: +SKIP
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

try:
    from workflow.first_use import at_first_use
except ModuleNotFoundError as error:  # here, since no module of ours can say it then
    import workflow

    raise ImportError(
        f"Expected the package 'workflow' of parquet-to-triton. Received: {workflow.__file__}, which has "
        "the same name and comes before it on Python's path. Rename it."
    ) from error

from loader.errors import LoaderError

if TYPE_CHECKING:
    from loader.frameworks.array_loader import ArrayLoader
    from loader.frameworks.checkpoint import LoaderCheckpoint
    from loader.frameworks.jax_loader import JaxLoader
    from loader.frameworks.keras_loader import KerasSequenceLoader
    from loader.frameworks.torch_loader import TorchLoader
    from loader.frameworks.validater import KerasSequenceValidater
    from loader.tensorflow.memory import configure_tensorflow
    from loader.tfrecords.convert import convert_tfrecords_to_parquet

__all__ = [
    "ArrayLoader",
    "JaxLoader",
    "KerasSequenceLoader",
    "KerasSequenceValidater",
    "LoaderCheckpoint",
    "LoaderError",
    "TorchLoader",
    "configure_tensorflow",
    "convert_tfrecords_to_parquet",
]
# Each is imported at its first use: a program needs one framework, and may have no other.
_MODULES = {
    "ArrayLoader": "loader.frameworks.array_loader",
    "JaxLoader": "loader.frameworks.jax_loader",
    "KerasSequenceLoader": "loader.frameworks.keras_loader",
    "KerasSequenceValidater": "loader.frameworks.validater",
    "LoaderCheckpoint": "loader.frameworks.checkpoint",
    "TorchLoader": "loader.frameworks.torch_loader",
    "configure_tensorflow": "loader.tensorflow.memory",
    "convert_tfrecords_to_parquet": "loader.tfrecords.convert",
}
for _name, _framework in (("JaxLoader", "jax"), ("TorchLoader", "torch")):
    if find_spec(_framework) is None:  # else `from loader import *` would fail
        __all__.remove(_name)  # noqa: PYI056 - type checkers are to know all names


def __dir__() -> list[str]:
    return __all__


__getattr__ = at_first_use("loader", _MODULES)
