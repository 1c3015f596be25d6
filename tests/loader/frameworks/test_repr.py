"""A loader says in a line what it delivers, and in a notebook as a table."""

import polars as pl

from loader import KerasSequenceLoader


def test_a_loader_in_a_line_and_as_a_table():
    frame = pl.DataFrame({f"c{n}": [1.0] * 10 for n in range(7)} | {"y": [0] * 10})
    names = [f"c{n}" for n in range(7)]
    loader = KerasSequenceLoader(frame, 4, ["y"], cat_names=[], cont_names=names, device="cpu")
    assert repr(loader) == (
        "KerasSequenceLoader(3 batches of 4 rows on cpu: c0, c1, c2, c3, c4 and 3 more)"
    )
    assert "<td>c6</td>" in loader._repr_html_()
