"""Clients of a soak: each asks until it is stopped, and looks at every answer."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np

from serving import ClientError, EnsembleClient

# A client that ends as if by a crash, with a request behind it and memory that it shares.
CRASHING = """
import os, sys
import polars as pl
from serving import EnsembleClient

url, model, file = sys.argv[1:]
client = EnsembleClient(
    url, model, shared_memory=True, headers={"triton-grpc-protocol-admin-key": os.environ["KEY"]}
)
client.predict(pl.read_parquet(file))
os.kill(os.getpid(), 9)
"""


class Clients:
    """Threads that ask models at once.

    Args:
        expected: the answers that are right, for each model: one of each generation.
        rows: the rows to ask for.
    """

    def __init__(self, expected, rows):
        self.expected, self.rows = expected, rows
        self.answers, self.wrong, self.failed = Counter(), Counter(), []
        self._stop, self._threads = threading.Event(), []

    def ask(self, url, model, **options):
        """Ask with one client after the other, each for a hundred requests."""

        def repeat():
            while not self._stop.is_set():
                with EnsembleClient(url, model, **options) as client:
                    for _ in range(100):
                        if not self._stop.is_set():
                            self._request(client, model)

        self._start(repeat)

    def _request(self, client, model):
        try:
            answer = client.predict(self.rows)["rating_score"].to_numpy()
        except ClientError as error:
            self.failed.append(f"{model}: {error}")
            return
        right = any(np.allclose(answer, good, atol=1e-5) for good in self.expected[model])
        (self.answers if right else self.wrong)[model] += 1

    def crash(self, url, model, file, key):
        """Let processes ask by shared memory and be killed, one after the other."""

        def repeat():
            command = [sys.executable, "-c", CRASHING, url, model, str(file)]
            while not self._stop.is_set():
                done = subprocess.run(
                    command, env={**os.environ, "KEY": key}, capture_output=True, check=False
                )
                if done.returncode == -9:
                    self.answers["crashed"] += 1
                else:
                    self.failed.append(done.stderr.decode()[-500:])
                self._stop.wait(2)

        self._start(repeat)

    def _start(self, target):
        thread = threading.Thread(target=target)
        self._threads.append(thread)
        thread.start()

    def asked(self, times, seconds=60):
        """Wait until each model has answered so often."""
        deadline = time.monotonic() + seconds
        while min(self.answers[model] for model in self.expected) < times:
            assert time.monotonic() < deadline, (self.answers, self.failed[:3])
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
