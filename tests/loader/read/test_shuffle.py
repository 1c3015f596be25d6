"""The quality of shuffling."""

import itertools

import numpy as np
import polars as pl
import pytest

from loader import ArrayLoader, KerasSequenceLoader


def test_row_groups_of_all_files_are_mixed(make, users):
    files = np.searchsorted([0, 400, 750], users(make()), side="right")
    assert len(list(itertools.groupby(files))) > 3, "the files came one after another"


def test_larger_buffers_mix_more(make, users):
    """Sorted labels: how far a batch's mean strays from the mean of all rows."""

    def drift(buffer_size):
        batches = np.array(users(make(buffer_size=buffer_size, batch_size=50))).reshape(20, 50)
        return float(np.std(batches.mean(axis=1)))

    # In file order the batches' means spread with 288, in a perfect shuffle with 41.
    one, four, all_ = (drift(32_000 * groups) for groups in (1, 4, 100))
    assert all_ < 80
    assert one > 150
    assert all_ < four < one


def test_row_order_has_no_trend(make, ratings, users):
    """One chunk is a uniform shuffle: position and value do not correlate."""
    frame = pl.concat([ratings] * 20).with_columns(userId=pl.int_range(20_000))
    seen = users(make(frame, batch_size=1000))
    assert sorted(seen) == list(range(20_000))
    correlation = np.corrcoef(seen, np.arange(20_000))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(20_000)
    assert np.mean(np.diff(seen) == 1) < 0.001


def spread(order, batch):
    """The deviation of batches from the mean of all rows, as multiples of chance."""
    batches = np.asarray(order, float).reshape(-1, batch)
    return batches.mean(axis=1).std() / (np.std(order) / np.sqrt(batch))


def rank_correlation(order):
    """Spearman's, of a row's place in the stream and its place in the sorted data."""
    return abs(np.corrcoef(order, np.arange(len(order)))[0, 1])


def as_peers_shuffle(rows, group, parts, seed=0):
    """NVTabular's order: row groups as they come, rows mixed within `parts` of them."""
    random = np.random.default_rng(seed)
    chunks = np.split(np.arange(rows), range(group * parts, rows, group * parts))
    return np.concatenate([random.permutation(chunk) for chunk in chunks])


def test_shuffling_is_measured_against_the_peers_on_sorted_data(tmp_path):
    """The figures in the class docstring: 40 row groups of 50,000 rows, sorted by their value."""
    rows, group = 2_000_000, 50_000
    frame = pl.DataFrame({"row": np.arange(rows, dtype=np.int32)})
    frame.write_parquet(tmp_path / "sorted.parquet", row_group_size=group)
    found = {}
    for parts in (1, 16, 40):
        loader = KerasSequenceLoader(
            tmp_path, 50_000, [], cat_names=["row"], parts_per_chunk=parts, seed=1, device="cpu"
        )
        order = np.concatenate([x["row"].numpy()[:, 0] for x in loader])
        found[parts] = (rank_correlation(order), spread(order, group))
        peers = as_peers_shuffle(rows, group, max(parts, 8))
        if parts < 40:
            assert rank_correlation(peers) > 0.85, "the peers' order is the order of the files"
            assert found[parts][0] < 0.1
            assert found[parts][1] < spread(peers, group) / 8
    # A batch draws from all row groups, from a slice of 32,768 rows in each.
    assert found[40][1] < 3
    assert found[40][0] < 0.01
    assert found[40][1] < found[16][1] < found[1][1]


@pytest.mark.parametrize("row_group", [None, 200_000, 60_000, 20_000], ids=str)
def test_small_data_is_mixed_as_a_whole_in_any_row_groups(tmp_path, row_group):
    """None for a frame."""
    frame = pl.DataFrame({"row": np.arange(200_000, dtype=np.int32)})
    if row_group:
        frame.write_parquet(tmp_path / "sorted.parquet", row_group_size=row_group)
    loader = ArrayLoader(tmp_path if row_group else frame, 1000, [], ["row"], seed=1)
    batches = [x["row"][:, 0] for x in loader]
    assert spread(np.concatenate(batches), 1000) < 1.3
    for batch in batches:
        assert len(set(batch // 10_000)) == 20


def test_few_row_groups_are_mixed_as_a_whole(tmp_path):
    frame = pl.DataFrame({"row": np.arange(600_000, dtype=np.int32)})
    frame.write_parquet(tmp_path / "sorted.parquet", row_group_size=300_000)
    loader = ArrayLoader(tmp_path, 2000, [], ["row"], seed=1)
    for x in loader:
        assert len(set(x["row"][:, 0] // 30_000)) == 20
