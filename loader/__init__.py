"""Feed Keras, PyTorch or JAX from parquet: streaming, shuffled, resumable.

Example:
    >>> from loader import KerasSequenceLoader
    >>> train = KerasSequenceLoader(  # doctest: +SKIP
    ...     "train/*.parquet", batch_size=65536, label_names=["rating"], cat_names=["userId"]
    ... )
    >>> model.fit(train)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from loader.errors import LoaderError
from loader.first_use import at_first_use

if TYPE_CHECKING:
    from loader.array_loader import ArrayLoader
    from loader.checkpoint import LoaderCheckpoint
    from loader.jax_loader import JaxLoader
    from loader.keras_loader import KerasSequenceLoader
    from loader.tensorflow_memory import configure_tensorflow
    from loader.tfrecords.convert import convert_tfrecords_to_parquet
    from loader.torch_loader import TorchLoader
    from loader.validater import KerasSequenceValidater

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
    "ArrayLoader": "array_loader",
    "JaxLoader": "jax_loader",
    "KerasSequenceLoader": "keras_loader",
    "KerasSequenceValidater": "validater",
    "LoaderCheckpoint": "checkpoint",
    "TorchLoader": "torch_loader",
    "configure_tensorflow": "tensorflow_memory",
    "convert_tfrecords_to_parquet": "tfrecords.convert",
}


def __dir__() -> list[str]:
    return __all__


__getattr__ = at_first_use("loader", _MODULES)
