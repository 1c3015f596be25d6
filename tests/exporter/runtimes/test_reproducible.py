"""The same workflow and network give the same files, whichever process exports them."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import export_again
import keras
import pytest
import user_networks
from small_export import tree

from exporter import verify
from exporter.write.onnx.network import network_to_onnx
from exporter.write.saved_model import signatures_writer
from training import models
from training.network.keras_network import KerasNetwork
from training.network.saved_network import SIGNATURE
from workflow import get_embedding_sizes

QUICK = ("mlp:tensorflow:0", "mlp:fused_onnx:0")
LONG = (
    "mlp:onnx:64",
    "mlp:fused_tensorflow:64",
    "varied:tensorflow:16",
    "varied:fused_tensorflow:0",
    "bidirectional:fused_onnx:16",
)
HERE = Path(__file__).parents[1]


def mlp(workflow):
    return models.mlp(get_embedding_sizes(workflow), ["price"], max_embedding_dim=4)


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """The repositories of this process and of another one, of the exports with the given names."""

    @cache
    def export(names):
        folder = tmp_path_factory.mktemp("networks")
        workflow = user_networks.make_workflow()
        workflow.save(folder / "workflow")
        for network in {name.partition(":")[0] for name in names}:
            made = mlp(workflow) if network == "mlp" else getattr(user_networks, network)()
            made.save(folder / f"{network}.keras")
        ours, theirs = folder / "ours", folder / "theirs"
        theirs.mkdir()
        path = os.pathsep.join([str(HERE.parents[1]), str(HERE)])
        with subprocess.Popen(
            [sys.executable, export_again.__file__, folder, theirs, *names],
            env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "7"},
            stderr=subprocess.PIPE,
            text=True,
        ) as other:
            export_again.export_all(folder, ours, names)
            errors = other.communicate()[1]
        assert other.returncode == 0, errors
        return ours, theirs

    return export


@pytest.mark.parametrize(
    ("exports", "name"),
    [
        *(pytest.param(QUICK, name, id=name) for name in QUICK),
        *(pytest.param(LONG, name, id=name, marks=pytest.mark.long) for name in LONG),
    ],
)
def test_another_process_writes_the_same_bytes(exports, name, repositories):
    ours, theirs = (folder / name.replace(":", "-") for folder in repositories(exports))
    files = tree(ours)
    assert len(files) > 3
    assert {path for path, content in tree(theirs).items() if files.get(path) != content} == set()
    assert files.keys() == tree(theirs).keys()
    assert verify(ours, "movies") == verify(theirs, "movies")


def test_a_network_that_is_built_again_differs_by_the_names_of_its_outputs_alone(tmp_path):
    """Keras gives its layers other names, as in a notebook."""

    def build(output=None):
        given = keras.Input((4,), name="price")
        hidden = keras.layers.Dense(3)(keras.layers.Dropout(0.5)(given))
        return keras.Model(given, keras.layers.Dense(1, name=output)(hidden))

    def written(name, network):
        (tmp_path / name).mkdir()
        signatures_writer(network, {SIGNATURE: network.function})(tmp_path / name)
        network_to_onnx(network).write(tmp_path / name)
        return tree(tmp_path / name)

    first, second, named, again = build(), build(), build("score"), build("score")
    again.set_weights(named.get_weights())
    assert again.layers[-2].name != named.layers[-2].name
    files = written("named", KerasNetwork(named, {}))
    assert written("again", KerasNetwork(again, {})) == files
    assert {"model.onnx", "model.savedmodel/saved_model.pb"} < files.keys()
    assert len({KerasNetwork(n, {}).signature.outputs[0].name for n in (first, second)}) == 2
