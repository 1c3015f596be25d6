"""The preprocessing of this project: raw columns in, features and the label out."""

from workflow import Workflow, ops

ids = ["user", "item"] >> ops.Categorify(freq_threshold=2)
numbers = ["price"] >> ops.FillMedian() >> ops.LogOp() >> ops.Normalize()
label = ["clicked"] >> ops.AddTags(["target"])
workflow = Workflow(ids + numbers + label)
