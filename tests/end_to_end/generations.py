"""Generations of a model whose answers tell which preprocessing and which network made them."""

import threading
import time
from contextlib import contextmanager
from typing import NamedTuple

import keras
import numpy as np
import polars as pl

from exporter import ServingOptions, export_tensorflow_ensemble
from serving import EnsembleClient
from workflow import Workflow, ops

ROWS = pl.DataFrame({"clicks": range(8), "views": range(8)})


def generation_of(answer):
    """The generation that made all rows of an answer; fails for a mixture.

    On paper: no row has the same answer in two generations, or from two of them.
    """
    generation = int(answer[0]) // 10_000
    whole = ROWS["clicks"].to_numpy() + 10_000 * generation + 100 * generation
    assert answer.tolist() == whole.tolist(), "a mixed answer"
    return generation


def pipeline(generation, column="clicks"):
    """The workflow and the network of a generation; its one input is a column of `ROWS`."""
    moved = [column] >> ops.LambdaOp(lambda value: value + 10_000 * generation)
    workflow = Workflow(moved).fit(ROWS)
    given = keras.Input((1,), name=column, dtype="int64")
    number = keras.ops.cast(given, "float32")
    score = keras.layers.Dense(1, name="score")
    network = keras.Model({column: given}, score(number))
    score.set_weights([np.ones((1, 1), np.float32), np.array([100.0 * generation], np.float32)])
    return workflow, network


def export(repository, generation, version, column="clicks", **options):
    """Export a generation."""
    workflow, network = pipeline(generation, column)
    return export_tensorflow_ensemble(
        network, workflow, "live", repository, version=version, serving=ServingOptions(**options)
    )


class Answer(NamedTuple):
    """The generation that answered, and when the request was sent and answered."""

    generation: int
    sent: float
    received: float


class Load:
    """Four clients that ask again and again, and keep what they got.

    Args:
        pause: the seconds between two requests of a client, which leave the server a part of the machine.

    Attributes:
        failures: the errors; no request is sent twice.
        answers: the answers of all threads.
    """

    def __init__(self, url, pause):
        self._url, self._pause = url, pause
        self.ended, self._lock = threading.Event(), threading.Condition()
        self.failures, self.answers = [], []

    @property
    def generations(self):
        """The generations that answered."""
        return {answer.generation for answer in self.answers}

    def percentile(self, spans, share):
        """The percentile of the seconds of requests that were sent or answered in one of some spans."""
        seconds = [
            answer.received - answer.sent
            for answer in self.answers
            if any(answer.received > start and answer.sent < end for start, end in spans)
        ]
        return float(np.percentile(seconds, share))

    def expect(self, generation, answers=20):
        """Wait for answers to requests that are sent from now on, all of one generation."""
        start = time.perf_counter()

        def new():
            return [answer for answer in self.answers if answer.sent > start]

        with self._lock:
            assert self._lock.wait_for(lambda: self.failures or len(new()) >= answers, 60)
        assert self.failures == []
        assert {answer.generation for answer in new()} == {generation}

    def run(self):
        try:
            with EnsembleClient(self._url, "live", retries=0) as client:
                while not self.ended.wait(self._pause):
                    self._ask(client)
        except Exception as error:  # noqa: BLE001 - of a thread
            with self._lock:
                self.failures.append(error)
                self._lock.notify_all()

    def _ask(self, client):
        sent = time.perf_counter()
        answer = client.predict(ROWS)["score"].to_numpy()
        received = time.perf_counter()
        with self._lock:
            self.answers.append(Answer(generation_of(answer), sent, received))
            self._lock.notify_all()

    @classmethod
    @contextmanager
    def of(cls, url, pause=0.005):
        load = cls(url, pause)
        running = [threading.Thread(target=load.run) for _ in range(4)]
        for thread in running:
            thread.start()
        try:
            yield load
        finally:
            load.ended.set()
            for thread in running:
                thread.join()
        assert load.failures == []
