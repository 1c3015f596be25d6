"""The proof in a server: one that is started for it loads the staged repository, and answers golden rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

from exporter.errors import ExportError
from exporter.plan.plan import Plan
from exporter.prove.proof import Proof
from serving.embedded.administration import Administration
from serving.embedded.golden import GoldenAnswer, expect_golden
from serving.embedded.installation import expect_server
from serving.embedded.server import TritonServer
from serving.errors import ServerError
from triton_models.healthcheck import ProbeError
from workflow.progress.stage import at_work

# In a staging folder, beside the models, whose names do not begin with a dot.
LOG = ".server.log"
# For the answer to a row.
SECONDS = 60.0


def prove_served(stage: Path, plan: Plan, proof: Proof) -> Proof:
    """Prove staged models in a server too, if the option `prove` says so.

    Args:
        stage: the staging folder, which is a repository of the new version alone.
        plan: the published form of the plan.
        proof: the proof in this process.

    Returns:
        The proof, which says whether a server took part, or why none could.

    Raises:
        ExportError: there is no server, it cannot load the models, it answers a golden row
            differently, or a request without rows ends it.
    """
    prove = plan.pipeline.options.prove
    if prove == "process":
        return proof
    try:
        expect_server()
    except ServerError as error:
        if prove == "auto":
            return replace(proof, no_server=str(error))
        raise _unproven(error) from error
    at_work("answer golden rows in a server")
    try:
        name = plan.published.name
        with TritonServer(stage, [name], log_file=stage / LOG) as server:
            expect_golden(server.administration, name, proof.golden, timeout=SECONDS)
            # Of a model that joins requests Triton refuses one without rows itself.
            if not plan.published.max_batch_size:
                _expect_to_survive(server.administration, name, proof.golden[0])
    except ServerError as error:
        raise _unproven(error) from error
    return replace(proof, in_server=True)


def _expect_to_survive(server: Administration, model: str, row: GoldenAnswer) -> None:
    """Send a request without rows, as a client may, to the server of this proof, which it may end.

    Raises:
        ServerError: the server does not answer a golden row any more, or gave an answer with rows.
    """
    request = {name: tensor[:0] for name, tensor in row.request.items()}
    try:
        answer = server.answer(model, request, SECONDS)
    except ProbeError as error:
        _expect_answer_after(server, model, row)
        warnings.warn(
            f"The server refuses a request of {model} without rows: {error} Our client sends none; "
            "others should not either.",
            stacklevel=5,  # where the export was called
        )
        return
    expected = {name: (tensor.dtype, (0, *tensor.shape[1:])) for name, tensor in row.answer.items()}
    received = {name: (tensor.dtype, tensor.shape) for name, tensor in answer.items()}
    if received != expected:
        raise ServerError(
            f"Expected {model} to answer a request without rows by {expected}. Received: {received}."
        )


def _expect_answer_after(server: Administration, model: str, row: GoldenAnswer) -> None:
    try:
        expect_golden(server, model, [row], timeout=SECONDS)
    except ServerError as error:
        raise ServerError(f"{error} A request without rows had ended the model.") from error


def _unproven(error: Exception) -> ExportError:
    return ExportError(
        "Expected a server that loads the written models and answers their golden rows. "
        f'Received: {error}\nNothing was published. prove="process" leaves the server out.'
    )
