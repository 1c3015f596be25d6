"""Keras does without scikit-learn in the processes that tests start, as it does where users have none.

It imports the one of our tests, which takes 2 s of each process that imports TensorFlow.
"""

import sys
from importlib.abc import MetaPathFinder


class NotForKeras(MetaPathFinder):
    """Finds no scikit-learn while Keras imports its wrappers; a program of its own finds it."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - of every finder
        wrappers = sys.modules.get("keras.src.wrappers")
        if name == "sklearn" and wrappers and not hasattr(wrappers, "SKLearnClassifier"):
            raise ModuleNotFoundError(name=name)


sys.meta_path.insert(0, NotForKeras())
