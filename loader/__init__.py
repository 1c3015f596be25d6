"""Feed Keras from parquet: streaming, shuffled, resumable.

Example:
    >>> from loader import KerasSequenceLoader
    >>> train = KerasSequenceLoader(  # doctest: +SKIP
    ...     "train/*.parquet", batch_size=65536, label_names=["rating"], cat_names=["userId"]
    ... )
    >>> model.fit(train)  # doctest: +SKIP
"""

from loader.checkpoint import LoaderCheckpoint
from loader.errors import LoaderError
from loader.keras_loader import KerasSequenceLoader
from loader.tensorflow_memory import configure_tensorflow
from loader.validater import KerasSequenceValidater

__all__ = [
    "KerasSequenceLoader",
    "KerasSequenceValidater",
    "LoaderCheckpoint",
    "LoaderError",
    "configure_tensorflow",
]
