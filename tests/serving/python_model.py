"""A model of code that a test writes."""


def python_model(folder, code):
    """Write a model in Python that takes `x` and answers `y`; returns its folder."""
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(code)
    (folder / "config.pbtxt").write_text(
        'backend: "python" instance_group [{ kind: KIND_CPU count: 1 }]'
        'input [{ name: "x" data_type: TYPE_FP32 dims: [-1, 1] }]'
        'output [{ name: "y" data_type: TYPE_FP32 dims: [-1, 1] }]'
    )
    return folder
