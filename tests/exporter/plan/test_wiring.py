"""The proof before the first byte: right ensembles pass, and every mutant is caught."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import ExportError
from exporter.plan.config_pbtxt import config_text, parse_config
from exporter.plan.model_spec import EnsembleStep, ModelSpec, ModelTensor
from exporter.plan.wiring import prove

# The numbers of inference.DataType.
TRITON = {"int32": 8, "int64": 9, "float32": 11, "string": 13}
DTYPES = list(TRITON)


@st.composite
def ensembles(draw):
    """A two-step ensemble that fits: any number of tensors at each of the three joints."""

    def tensors(prefix):
        count = draw(st.integers(1, 4))
        return tuple(
            ModelTensor(
                f"{prefix}{n}", draw(st.sampled_from(DTYPES)), (-1, draw(st.integers(1, 3)))
            )
            for n in range(count)
        )

    raw, middle, out = tensors("raw"), tensors("middle"), tensors("out")
    first = ModelSpec("first", 1, raw, middle)
    second = ModelSpec("second", 1, middle, out)
    steps = (
        EnsembleStep(
            "first", 1, {t.name: t.name for t in raw}, {t.name: t.name + "_m" for t in middle}
        ),
        EnsembleStep(
            "second", 1, {t.name: t.name + "_m" for t in middle}, {t.name: t.name for t in out}
        ),
    )
    return ModelSpec("ensemble", 1, raw, out, platform="ensemble", steps=steps), first, second


@given(ensembles())
def test_what_fits_passes(made):
    ensemble, *models = made
    prove(ensemble, models)


def change_tensor(how):
    def mutate(model, side, position):
        tensors = list(getattr(model, side))
        tensors[position % len(tensors)] = how(tensors[position % len(tensors)])
        return replace(model, **{side: tuple(tensors)})

    return mutate


def drop(model, side, position):
    tensors = list(getattr(model, side))
    del tensors[position % len(tensors)]
    return replace(model, **{side: tuple(tensors)})


def double(model, side, position):
    tensors = getattr(model, side)
    return replace(model, **{side: (*tensors, tensors[position % len(tensors)])})


MUTATIONS = {
    "renamed": change_tensor(lambda t: replace(t, name=t.name + "x")),
    "retyped": change_tensor(lambda t: replace(t, dtype="int8")),
    "reshaped": change_tensor(lambda t: replace(t, dims=(-1, 9))),
    "dropped": drop,
    "doubled": double,
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("which", [0, 1, 2])
@given(made=ensembles(), side=st.sampled_from(["inputs", "outputs"]), position=st.integers(0, 3))
def test_every_mutant_is_caught(mutation, which, made, side, position):
    models = list(made)
    models[which] = MUTATIONS[mutation](models[which], side, position)
    with pytest.raises(ExportError):
        prove(models[0], models[1:])


def change_mapping(how):
    def mutate(names, position):
        key = sorted(names)[position % len(names)]
        return how(dict(names), key)

    return mutate


MAPPING_MUTATIONS = {
    "dropped": lambda names, key: {k: v for k, v in names.items() if k != key},
    "key renamed": lambda names, key: {k + "x" * (k == key): v for k, v in names.items()},
    "wire renamed": lambda names, key: {k: v + "x" * (k == key) for k, v in names.items()},
    "doubled": lambda names, key: {**names, key + "x": names[key]},
}


@pytest.mark.parametrize("mutation", MAPPING_MUTATIONS)
@given(
    made=ensembles(),
    number=st.integers(0, 1),
    side=st.sampled_from(["inputs", "outputs"]),
    position=st.integers(0, 3),
)
def test_every_mutant_of_a_mapping_is_caught(mutation, made, number, side, position):
    ensemble, *models = made
    steps = list(ensemble.steps)
    change = change_mapping(MAPPING_MUTATIONS[mutation])
    steps[number] = replace(steps[number], **{side: change(getattr(steps[number], side), position)})
    with pytest.raises(ExportError):
        prove(replace(ensemble, steps=tuple(steps)), models)


@pytest.mark.parametrize("field", [{"model": "third"}, {"version": 2}, {"version": -1}])
@given(made=ensembles(), number=st.integers(0, 1))
def test_a_step_of_another_model_or_version_is_caught(field, made, number):
    ensemble, *models = made
    steps = list(ensemble.steps)
    steps[number] = replace(steps[number], **field)
    with pytest.raises(ExportError, match=r"third|version 1 is exported"):
        prove(replace(ensemble, steps=tuple(steps)), models)


@given(made=ensembles())
def test_steps_in_the_wrong_order_or_left_out_are_caught(made):
    ensemble, *models = made
    for steps in (ensemble.steps[::-1], ensemble.steps[:1], ensemble.steps[1:], ()):
        with pytest.raises(ExportError):
            prove(replace(ensemble, steps=steps), models)


@given(made=ensembles())
def test_a_config_says_all_of_a_model(made):
    """A config that is read back from its text is the planned one."""
    for model in made:
        config = parse_config(config_text(model, [model.version]))
        for tensors, planned in ((config.input, model.inputs), (config.output, model.outputs)):
            assert [(t.name, t.data_type, tuple(t.dims)) for t in tensors] == [
                (p.name, TRITON[p.dtype], p.dims) for p in planned
            ]
        steps = config.ensemble_scheduling.step
        assert [
            (s.model_name, s.model_version, dict(s.input_map), dict(s.output_map)) for s in steps
        ] == [(s.model, s.version, s.inputs, s.outputs) for s in model.steps]
        assert list(config.version_policy.specific.versions) == [model.version]


def test_the_text_names_both_sides():
    a, b = ModelTensor("a", "int64"), ModelTensor("b", "int32")
    first, second = ModelSpec("first", 1, (a,), (a,)), ModelSpec("second", 1, (b,), (b,))
    steps = (
        EnsembleStep("first", 1, {"a": "a"}, {"a": "m"}),
        EnsembleStep("second", 1, {"b": "m"}, {"b": "b"}),
    )
    ensemble = ModelSpec("e", 1, (a,), (b,), steps=steps)
    with pytest.raises(
        ExportError, match=r"'m' is made as int64\[-1, 1\] by the output 'a' of first"
    ) as error:
        prove(ensemble, [first, second])
    assert "taken as int32[-1, 1] by input 'b' of second" in str(error.value)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([EnsembleStep("none", 1, {"a": "a"}, {"a": "b"})], "no such model"),
        ([EnsembleStep("one", 2, {"a": "a"}, {"a": "b"})], "version 1 is exported"),
        ([EnsembleStep("one", 1, {}, {"a": "b"})], "maps the inputs none of one"),
        ([EnsembleStep("one", 1, {"a": "zz"}, {"a": "b"})], "Nothing makes 'zz'"),
        ([EnsembleStep("one", 1, {"a": "a"}, {"a": "b"})] * 2, "made twice"),
        ([EnsembleStep("one", 1, {"a": "a"}, {"a": "unused"})], "Nothing makes 'b'"),
    ],
)
def test_steps_that_do_not_fit(steps, reason):
    tensor = ModelTensor("a", "int64")
    one = ModelSpec("one", 1, (tensor,), (tensor,))
    ensemble = ModelSpec("e", 1, (tensor,), (ModelTensor("b", "int64"),), steps=tuple(steps))
    with pytest.raises(ExportError, match=reason):
        prove(ensemble, [one])


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_two_tensors_under_one_name_of_the_ensemble(side):
    """The second one would hide that the first does not fit."""
    a, b, c, d = (
        ModelTensor(n, t) for n, t in zip("abcd", ("int8", "int64", "int8", "int64"), strict=True)
    )
    one = ModelSpec("one", 1, (a, b), (c, d))
    maps = {"inputs": {"a": "a", "b": "b"}, "outputs": {"c": "c", "d": "d"}}
    maps[side] = dict.fromkeys(maps[side], "b" if side == "inputs" else "d")
    ensemble = ModelSpec("e", 1, (a, b), (d,), steps=(EnsembleStep("one", 1, **maps),))
    with pytest.raises(ExportError, match=f"Two {side} of one have one name in the ensemble"):
        prove(ensemble, [one])


def test_a_tensor_that_nobody_takes():
    a = ModelTensor("a", "int64")
    one = ModelSpec("one", 1, (a,), (a,))
    ensemble = ModelSpec(
        "e",
        1,
        (a, ModelTensor("b", "int8")),
        (a,),
        steps=(EnsembleStep("one", 1, {"a": "a"}, {"a": "c"}),),
    )
    with pytest.raises(ExportError):
        prove(ensemble, [one])
