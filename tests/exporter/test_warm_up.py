"""A model that is to be warmed up is sent a request by the server before it is ready."""

import pytest

from exporter import ServingOptions
from exporter.config import parse_config
from exporter.options import RUNTIMES


def configs(report):
    return [
        parse_config((report.repository / model.name / "config.pbtxt").read_text())
        for model in report.plan.models
    ]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("warm_up", [True, False])
def test_every_model_that_computes_is_warmed_up_if_so_asked(runtime, warm_up, export):
    options = ServingOptions(runtime=runtime, max_batch_size=8, warm_up=warm_up)
    for config in configs(export(serving=options)):
        sent = [set(request.inputs) for request in config.model_warmup]
        wanted = warm_up and config.platform != "ensemble"
        assert sent == [{tensor.name for tensor in config.input}] * wanted
