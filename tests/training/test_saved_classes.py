"""Keras loads a model with our layers and optimizers once `training` is imported."""

import importlib
import pkgutil
import subprocess
import sys

import keras

import training

PROGRAM = "import training, keras; print(*sorted(keras.saving.get_custom_objects()))"


def test_importing_the_package_tells_keras_of_all_its_classes():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    for module in pkgutil.walk_packages(training.__path__, "training."):
        importlib.import_module(module.name)
    ours = {
        name
        for name, found in keras.saving.get_custom_objects().items()
        if found.__module__.startswith("training.")
    }
    assert len(ours) > 5
    assert ours <= set(done.stdout.split())
