"""A pipeline small enough to export in a blink, and a look at what an export wrote."""

import hashlib

import polars as pl

from exporter.plan.config_pbtxt import read_config
from workflow import Workflow, ops


def rows():
    return pl.DataFrame(
        {
            "userId": [1, 2, 2, None],
            "genres": [["a", "b"], [], None, ["b", None]],
            "price": [1.0, 2.0, None, 4.0],
            "rating": [1.0, 4.0, 5.0, 3.0],
            "clicks": [1, 2, 3, 4],
        }
    )


def make_workflow():
    ids = ["userId", "genres"] >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0.0) >> ops.Normalize()
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    return Workflow(ids + price + label + ["clicks"]).fit(rows())


def tree(folder):
    """Every file under a folder with its content's hash, and every folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def after_rollback(files, repository, version, newest):
    """The files of a repository, as `tree` gives them, if a version is published again after newer ones."""
    config = (repository / "movies" / str(version) / "config.pbtxt").read_text()
    config += f'parameters {{ key: "newest_version" value {{ string_value: "{newest}" }} }}\n'
    return files | {"movies/config.pbtxt": hashlib.sha256(config.encode()).hexdigest()}


def configs(report):
    """The config of each model that an export wrote, by the model's name."""
    names = [model.name for model in report.plan.models]
    return {name: read_config(report.repository / name / "config.pbtxt") for name in names}
