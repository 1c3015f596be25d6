"""ServingOptions: each one reaches the configs and the report, and contradictions are named."""

import json
from dataclasses import fields

import numpy as np
import pytest
from small_export import configs, rows

from exporter import ExportError, ServingOptions
from exporter.plan.config_pbtxt import config_text, parse_config
from exporter.plan.model_spec import ModelSpec, ModelTensor
from exporter.plan.runtime import RUNTIMES


def test_counts_may_be_numbers_of_numpy():
    """As the longest list of a column is, and so are its rows."""
    given = {"max_batch_size": 64, "max_rows": 32, "keep_versions": 3, "server_memory_gb": 8}
    options = ServingOptions(**{name: np.int64(number) for name, number in given.items()})
    assert options == ServingOptions(**given)
    assert json.dumps({name: getattr(options, name) for name in given}) == json.dumps(given)


def test_options_reach_the_config(export):
    options = ServingOptions(
        max_batch_size=32,
        max_queue_delay_us=100,
        max_queue_size=9,
        queue_timeout_us=5000,
        response_cache=True,
        network_instances=2,
        network_kind="KIND_GPU",
        max_rows=7,
        max_list_length=8,
        max_string_bytes=9,
        golden_rows=rows(),
        server_memory_gb=8,
        other_fit=True,
    )
    report = export(serving=options)
    nvt, tf_, ensemble = configs(report).values()
    for config in (nvt, tf_):
        batching = config.dynamic_batching
        assert batching.max_queue_delay_microseconds == 100
        assert batching.default_queue_policy.max_queue_size == 9
        assert batching.default_queue_policy.default_timeout_microseconds == 5000
    assert [(group.count, group.kind) for group in tf_.instance_group] == [(2, 1)]
    assert ensemble.response_cache.enable
    assert json.loads(nvt.parameters["limits"].string_value) == options.limits
    shown = " ".join(str(report).split())
    # Progress has no effect on what is served, and TensorFlow is no onnxruntime.
    for name in {field.name for field in fields(options)} - {"progress", "onnxruntime"}:
        assert f"{name} " in shown
    assert "warm_up on, golden_rows the first 4" in shown
    for words in ("max_batch_size 32", "max_queue_size 9", "max_rows 7", "network_kind KIND_GPU"):
        assert words in shown
    assert "only when started with --cache-config=local,size=" in shown
    assert "max_string_bytes: checked before any work by our client, our preprocessing" in shown


@pytest.mark.parametrize("limits", [(9, 0), (0, 5000)])
def test_one_limit_of_a_queue_is_enough(limits):
    size, timeout = limits
    options = ServingOptions(max_batch_size=8, max_queue_size=size, queue_timeout_us=timeout)
    tensor = (ModelTensor("x", "int64"),)
    model = ModelSpec("m", 1, tensor, tensor, max_batch_size=8, queue=options.queue)
    policy = parse_config(config_text(model)).dynamic_batching.default_queue_policy
    assert (policy.max_queue_size, policy.default_timeout_microseconds) == limits


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_limits_are_in_the_plan_of_every_runtime_and_a_cache_in_that_of_ensembles(runtime, export):
    limits = {"max_rows": 7, "max_list_length": 8, "max_string_bytes": 9}
    is_fused = RUNTIMES[runtime].is_fused
    if is_fused:
        with pytest.raises(ExportError, match=r"no response_cache: .* as empty successes\. Use"):
            ServingOptions(runtime=runtime, response_cache=True)
    options = ServingOptions(runtime=runtime, response_cache=not is_fused, **limits)
    by_name = configs(export(serving=options))
    # What sees the raw columns first checks them; the client reads the published model's.
    for name in {next(iter(by_name)), "movies"}:
        assert json.loads(by_name[name].parameters["limits"].string_value) == limits
    # A step's answer must not be kept under the ensemble's.
    cached = [name for name, config in by_name.items() if config.response_cache.enable]
    assert cached == ([] if is_fused else ["movies"])


@pytest.mark.parametrize("rows", [0, 100_000])
def test_limits_that_are_not_set_are_generous(rows, export):
    """A request of as many rows as the server joins is never beyond them."""
    config = configs(export(serving=ServingOptions(max_batch_size=rows)))["movies"]
    limits = json.loads(config.parameters["limits"].string_value)
    most = {} if rows else {"max_rows": 65_536}
    assert limits == most | {"max_list_length": 65_536, "max_string_bytes": 65_536}


def test_where_nothing_is_set_the_report_says_so(export):
    shown = " ".join(str(export()).split())
    for words in (
        *("max_batch_size 0", "warm_up on", "golden_rows one of zeros"),
        *("max_rows 65,536", "max_list_length 65,536", "max_string_bytes 65,536"),
    ):
        assert words in shown
    assert "--cache-config" not in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"runtime": "caffe"}, "Expected runtime among tensorflow, .*onnx"),
        ({"network_kind": "KIND_TPU"}, "Expected network_kind among KIND_CPU"),
        ({"network_instances": 0}, "Expected network_instances as a whole number from 1"),
        ({"preprocess_instances": True}, "Expected preprocess_instances"),
        ({"max_batch_size": -1}, "Expected max_batch_size as a whole number from 0"),
        ({"max_batch_size": 2.0}, "Expected max_batch_size"),
        ({"keep_versions": 0}, "Expected keep_versions as a whole number from 1"),
        ({"max_rows": 0}, "Expected max_rows"),
        ({"warm_up": "false"}, "Expected warm_up as True or False. Received: 'false'"),
        ({"pack": 0}, "Expected pack as True or False. Received: 0"),
        ({"response_cache": 64 * 2**20}, "Expected response_cache as True or False"),
        ({"max_string_bytes": "9"}, "Expected max_string_bytes"),
        ({"max_queue_size": 5}, "max_queue_size has an effect only if.*Set max_batch_size as well"),
        ({"queue_timeout_us": 5}, "Set max_batch_size as well"),
        ({"max_batch_size": 64, "max_rows": 65}, "Expected max_rows up to .* 64.*Received: 65"),
        (
            {"max_batch_size": 64, "queue_timeout_us": 100, "max_queue_delay_us": 100},
            "Expected queue_timeout_us above max_queue_delay_us",
        ),
        (
            {"runtime": "fused_onnx", "preprocess_instances": 2},
            'preprocess_instances: runtime="fused_onnx" is one model.*Use network_instances',
        ),
        ({"runtime": "fused_onnx", "pack": False}, "no pack=False: .* is one model, without steps"),
        ({"warm_up": False, "golden_rows": {"a": [1]}}, "Leave warm_up=True"),
        (
            {"server_memory_gb": 8, "keep_versions": None},
            "Expected a number for keep_versions beside server_memory_gb",
        ),
        ({"onnxruntime": "1.16.3"}, r"from 1\.17 on, .* preprocessing\. Received: '1\.16\.3'"),
        ({"onnxruntime": 1.18}, r"Expected onnxruntime as text.*Received: 1\.18"),
        ({"onnxruntime": "26.01"}, "such as .1.23.*Received: '26.01'"),
        (
            {"runtime": "fused_tensorflow", "onnxruntime": "1.18"},
            'no onnxruntime: with runtime="fused_tensorflow" .*runtime="onnx"',
        ),
    ],
)
def test_options_that_make_no_sense(options, reason):
    with pytest.raises(ExportError, match=reason):
        ServingOptions(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": 64, "max_rows": 64},
        {"max_batch_size": 64, "max_queue_delay_us": 100, "queue_timeout_us": 101},
        {"runtime": "onnx", "preprocess_instances": 2, "pack": False},
    ],
)
def test_options_that_just_make_sense(options):
    made = ServingOptions(**options)
    assert {name: getattr(made, name) for name in options} == options
