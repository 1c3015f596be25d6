"""Nothing stays open, and Ctrl-C is heard."""

import contextlib
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import pytest


def open_files():
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it meanwhile
            names.append(str(link.readlink()))
    return names


def own_threads():
    """The threads that Python started; TensorFlow's own pool shows as dummies once it calls Python."""
    for thread in threading.enumerate():
        if thread.name.startswith("parquet-"):
            thread.join(10)  # it was told to end
    return [thread.name for thread in threading.enumerate() if thread.name[:5] != "Dummy"]


@pytest.mark.parametrize("use", ["whole", "abandoned", "closed", "peeked", "compiled", "broken"])
def test_loaders_leave_no_thread_and_no_file(make, use, tmp_path, folder):
    broken = tmp_path / "0.parquet"

    def cycle():
        if use == "broken":
            broken.write_bytes((folder / "0.parquet").read_bytes())
            loader = make(broken)
            broken.unlink()
            with pytest.raises(ValueError, match="damaged"):
                next(iter(loader))
            return
        loader = make(batch_size=300)
        if use == "whole":
            list(loader)
        elif use == "abandoned":
            next(iter(loader))
        elif use == "peeked":
            loader.peek()
        elif use == "compiled":
            next(iter(loader.as_dataset()))
        else:
            with loader:
                batches = iter(loader)
                next(batches)

    cycle()
    gc.collect()
    threads, files = own_threads(), Counter(open_files())
    cycles = 5 if use == "compiled" else 12  # TensorFlow traces each dataset anew
    for _ in range(cycles):
        cycle()
    gc.collect()
    assert own_threads() == threads
    left = Counter(open_files()) - files  # other tests' servers and clients open some, too
    assert left.total() < cycles, left
    assert not [file for file in open_files() if file.endswith(".parquet")]


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("for _ in loader: tell()", marks=pytest.mark.long),
        "model.fit(loader, epochs=10**6)",
    ],
)
def test_ctrl_c_stops_at_once(folder, way):
    program = f"""
        import keras
        from loader import KerasSequenceLoader
        def tell(): print("batch", flush=True)
        price = keras.Input((1,), name="price")
        model = keras.Model({{"price": price}}, keras.layers.Dense(1)(price))
        model.compile("sgd", "mse")
        class Tell(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None): tell()
        loader = KerasSequenceLoader({str(folder)!r}, 1, ["rating"], cont_names=["price"])
        try:
            while True:
                {way.replace("epochs", "callbacks=[Tell()], verbose=0, shuffle=False, epochs")}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for _ in range(20):
            assert process.stdout.readline() == "batch\n"
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        rest, errors = process.communicate(timeout=60)
    assert rest.endswith("interrupted\n"), errors[-2000:]
    assert process.returncode == 0
    assert time.monotonic() - start < 30, "the process lingered"
