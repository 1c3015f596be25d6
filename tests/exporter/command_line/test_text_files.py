"""The commands over CSV and TSV."""

import polars as pl
from ensemble_command import ensemble

DEFINITION = """
from workflow import Workflow, ops
workflow = Workflow((["user"] >> ops.Categorify()) + (["price"] >> ops.FillMissing(0)))
"""


def test_text_is_fitted_and_transformed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features.py").write_text(DEFINITION)
    (tmp_path / "1.csv").write_text("user,price\na,1.5\nb,\n")
    (tmp_path / "2.csv").write_text("price,user\n2,b\n")
    (tmp_path / "new.tsv").write_text("user\tprice\nb\t7\nzz\t\n")
    fitted = ensemble("fit", "features.py", "[12].csv", "--transform-to", "train")
    assert fitted.exit_code == 0, fitted.output
    made = ensemble("transform", "new.tsv", "--output", "new")
    assert made.exit_code == 0, made.output
    # Padding, null and unknown have the ids before the most frequent value, which is b.
    assert pl.read_parquet("train/*.parquet").rows() == [(4, 1.5), (3, 0.0), (3, 2.0)]
    assert pl.read_parquet("new/*.parquet").rows() == [(3, 7.0), (2, 0.0)]
    (tmp_path / "bad.csv").write_text("user,price\na,1.5\nb\n")
    refused = ensemble("transform", "bad.csv", "--output", "bad")
    assert refused.exit_code == 1
    assert f"Expected 2 fields in line 3 of {tmp_path / 'bad.csv'}" in refused.stderr
    (tmp_path / "less.csv").write_text("user\na\n")
    refused = ensemble("transform", "less.csv", "--output", "less")
    assert "No column 'price' in the data." in refused.stderr
    # A remedy for a shell as well.
    assert "save that one with .save(folder), and pass --workflow folder." in refused.stderr
