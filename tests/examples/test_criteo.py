"""The example that is interrupted and goes on, run as a newcomer would."""

import re

import criteo
import numpy as np
import polars as pl
import pytest

# The first line of the challenge's file.
LINE = (
    "0 1 1 5 0 1382 4 15 2 181 1 2 _ 2 68fd1e64 80e26c9b fb936136 7b4723c4 25c83c98 7e0ccccf de7995b8 "
    "1f89b562 a73ee510 a8cd5504 b2cb9c98 37c9c164 2824a5f6 1adce6ef 8ba8b39a 891b62e7 e5ba7672 f54016b9 "
    "21ddcdc9 b1252a9d 07b5194c _ 3a171ecb c5c50484 e8b83407 9727dd16"
)


def test_the_real_file_is_read_as_the_generated_rows_are(tmp_path):
    words = [word.replace("_", "") for word in LINE.split()]
    below = [*words[:2], "-2", *words[3:]]
    lines = [words] * 19 + [below]
    (tmp_path / "train.txt").write_text("".join("\t".join(line) + "\n" for line in lines))
    assert criteo.write_raw(tmp_path, tmp_path) == 18
    known, later = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("clicks", "later"))
    assert (known.height, later["I2"].to_list()) == (18, [1.0, -2.0])
    generated = criteo.make_clicks(10, seed=0)
    assert known.schema == {name: generated.schema[name] for name in known.columns}
    assert (later["I12"][0], later["C1"][0], later["C22"][0]) == (None, 0x68FD1E64, None)
    made = criteo.make_workflow(2).fit(known).transform(later).collect()
    # Null is 1, and the one value of the vocabulary follows the id of unknown ones.
    assert made.select("C1", "C22").row(0) == (3, 1)
    assert np.isfinite(made["I12"].to_numpy()).all()


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_clicks_are_learnt_across_an_interruption_and_served(run_example):
    printed = run_example("criteo")
    before, after = printed.split("interrupted; resuming")
    assert "1/2" in before
    assert "1/2" not in after  # the second run does not train the first epoch again
    assert float(re.search(r"val_auc +([\d.]+)\n", after)[1]) > 0.7
    assert "Parity passed: clicks, 2,000 rows" in after
    assert max(map(len, printed.splitlines())) <= 80
