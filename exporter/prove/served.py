"""The proof in a server: one that is started for it loads the staged repository, and answers golden rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from exporter.errors import ExportError
from exporter.plan.plan import Plan
from exporter.prove.proof import Proof
from serving.embedded.golden import expect_golden
from serving.embedded.installation import expect_server
from serving.embedded.server import TritonServer
from serving.errors import ServerError
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
        The proof, which says whether a server took part.

    Raises:
        ExportError: there is no server, it cannot load the models, or it answers a golden row
            differently.
    """
    prove = plan.pipeline.options.prove
    if prove == "process":
        return proof
    try:
        expect_server()
    except ServerError as error:
        if prove == "auto":
            return proof
        raise _unproven(error) from error
    at_work("answer golden rows in a server")
    try:
        name = plan.published.name
        with TritonServer(stage, [name], log_file=stage / LOG) as server:
            expect_golden(server.administration, name, proof.golden, timeout=SECONDS)
    except ServerError as error:
        raise _unproven(error) from error
    return replace(proof, in_server=True)


def _unproven(error: Exception) -> ExportError:
    return ExportError(
        "Expected a server that loads the written models and answers their golden rows. "
        f'Received: {error}\nNothing was published. prove="process" leaves the server out.'
    )
