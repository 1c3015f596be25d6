"""The plan of an export: models that fit together, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exporter.columns.served_columns import ServedColumns
from exporter.errors import ExportError
from exporter.plan.golden_rows import GoldenRows, golden_rows
from exporter.plan.golden_values import vocabularies
from exporter.plan.model_name import expect_name
from exporter.plan.model_spec import ModelSpec
from exporter.plan.pipeline import Pipeline
from exporter.plan.warm_up import with_warm_up
from exporter.plan.wiring import expect_told_apart, prove, prove_alone
from workflow.expressions.program.program import Program
from workflow.schema.column import Strings

Writer = Callable[[Path], None]
_MOST_VERSION = 2**63 - 1  # versions are int64 to the server


@dataclass(frozen=True)
class Runtime:
    """One way to serve a pipeline.

    Attributes:
        plan: makes the models, steps first and the published one last.
        prepare: converts the network, a `Network` or a `TensorFlowNetwork`, and returns a function
            for each model with files, by the model's name, which writes them into a version folder.
            Features that the runtime cannot express raise `ExportError` in one of the two, before
            anything is written; the writers raise it if the disk refuses the files.
    """

    plan: Callable[[Pipeline], tuple[ModelSpec, ...]]
    prepare: Callable[[Any, Pipeline], Mapping[str, Writer]]


@dataclass(frozen=True)
class Plan:
    """The models that an export writes.

    Attributes:
        pipeline: the preprocessing, the network and the options.
        models: the steps, if there are any, and the published model last, in order of publication.
        golden: the rows of its proof.
    """

    pipeline: Pipeline
    models: tuple[ModelSpec, ...]
    golden: GoldenRows

    @property
    def features(self) -> ServedColumns:
        """The preprocessing."""
        return self.pipeline.features

    @property
    def published(self) -> ModelSpec:
        """The model that clients use."""
        return self.models[-1]

    @property
    def steps(self) -> tuple[ModelSpec, ...]:
        """The models inside the published one, if it is an ensemble."""
        return self.models[:-1]

    @property
    def contract(self) -> tuple[ModelSpec, ...]:
        """The models without their versions: the part that exports of other data have in common."""
        return tuple(
            replace(model, version=1, steps=tuple(replace(s, version=1) for s in model.steps))
            for model in self.models
        )

    def published_as(self, names: Mapping[str, str], generation: str) -> Plan:
        """The published form of the plan.

        Args:
            names: the names under which the steps are published.
            generation: a parameter of the model that clients use.
        """
        steps = [replace(step, name=names[step.name]) for step in self.steps]
        parameters = {**self.published.parameters, "generation": generation}
        if (preprocess := parameters.get("preprocessing")) is not None:
            parameters["preprocessing"] = names[preprocess]
        published = replace(
            self.published,
            parameters=parameters,
            steps=tuple(replace(s, model=names[s.model]) for s in self.published.steps),
        )
        return replace(self, models=(*steps, published))


def make_plan(pipeline: Pipeline, runtime: Runtime) -> Plan:
    """Make the models of an export, and check that they fit.

    Args:
        pipeline: the subject of the export, whose options name the runtime.
        runtime: the implementation of that runtime.

    Raises:
        ExportError: a name or version that Triton would refuse, a feature that the runtime cannot
            express, or steps that do not fit.
    """
    name, version = pipeline.name, pipeline.version
    expect_name(name)
    if type(version) is not int or not 1 <= version <= _MOST_VERSION:
        raise ExportError(
            f"Expected the version as a whole number from 1 to {_MOST_VERSION}. "
            f"Received: {version!r}."
        )
    if pipeline.options.ends_at_nul:
        _expect_no_nul(pipeline.features.program, pipeline.without_onnx)
    expect_told_apart(pipeline.client_columns)
    golden = golden_rows(pipeline)
    models = with_warm_up(pipeline, runtime.plan(pipeline), golden)
    models = tuple(_part_of(name, model) for model in models)
    plan = Plan(pipeline, models, golden)
    if plan.steps:
        prove(plan.published, plan.steps)
    else:
        prove_alone(plan.published)
    return plan


def _expect_no_nul(program: Program, alternatives: str) -> None:
    """Refuse a vocabulary of strings with a NUL: truncated, a string may equal another one."""
    for name, tables in vocabularies(program).items():
        for keys in tables:
            if isinstance(keys.values, Strings) and not keys.values.data.all():
                raise ExportError(
                    f"Expected a vocabulary of {name!r} without NUL in its strings, since Triton's "
                    "onnxruntime backend reads a string up to a NUL. Received: one with a NUL. "
                    f"Remove it from the data{alternatives and f', or use {alternatives}'}."
                )


def _part_of(name: str, model: ModelSpec) -> ModelSpec:
    """The model with the name of the model that clients use, which a server needs to check files."""
    if model.steps:
        return model
    return replace(model, parameters={**model.parameters, "published": name})
