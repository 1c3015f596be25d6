"""Answers of the step's search where FAISS alone has none: NaN, too few items, no rows."""

from types import SimpleNamespace

import faiss
import numpy as np
import onnx
import pytest

from exporter.write.onnx.nearest_items import nearest_to_onnx
from training.item_vectors import ItemVectors
from training.network.onnx_session import call_session, open_session
from training.signature import TensorSpec
from triton_models.nearest_items.search import INDEX, ItemSearch, write_ids

COUNT, WIDTH, K = 300, 8, 5
VECTORS = np.random.default_rng(0).normal(size=(COUNT, WIDTH)).astype("float32")
IDS = {
    "integers": np.arange(COUNT) * 10**12 - 7,
    "strings": np.array(["", *(f"☃{n}" * (n % 3) + str(n) for n in range(1, COUNT))], object),
}


@pytest.fixture(params=IDS)
def ids(request):
    return IDS[request.param]


def search_of(folder, ids, factory="Flat"):
    index = faiss.index_factory(WIDTH, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(VECTORS)
    index.add(VECTORS)
    faiss.write_index(index, str(folder / INDEX))
    write_ids(ids, folder)
    return ItemSearch(folder)


def exact_step(ids):
    """The parts of the exact search, behind any tower."""
    kind = "string" if ids.dtype == object else "int64"
    outputs = TensorSpec("item", kind, (None, K)), TensorSpec("score", "float32", (None, K))
    return SimpleNamespace(
        items=ItemVectors(ids, VECTORS),
        k=K,
        vector=TensorSpec("vector", "float32", (None, WIDTH)),
        signature=SimpleNamespace(outputs=outputs),
    )


def test_the_exact_step_has_a_row_to_search_for_in_a_request_without_rows(tmp_path, ids):
    """onnxruntime before 1.31 divides by zero in TopK otherwise, which ends the server."""
    model = nearest_to_onnx(exact_step(ids))
    (best,) = (node for node in model.proto.graph.node if node.op_type == "TopK")
    model.proto.graph.output.append(
        onnx.helper.make_tensor_value_info(best.input[0], onnx.TensorProto.FLOAT, ["M", COUNT])
    )
    model.write(tmp_path)
    session = open_session(tmp_path / "model.onnx")
    for rows in (0, 1, 3):
        item, score, searched = session.run(None, {"vector": VECTORS[:rows]})
        assert item.shape == score.shape == (rows, K)
        assert len(searched) == max(rows, 1)


def test_it_answers_as_the_exact_step(tmp_path, ids):
    """All items are compared here too, so lists and scores are equal; also none, NaN, and a NaN alone."""
    model = nearest_to_onnx(exact_step(ids))
    model.write(tmp_path)
    session = open_session(tmp_path / "model.onnx")
    search = search_of(tmp_path, ids)
    queries = np.random.default_rng(1).normal(size=(40, WIDTH)).astype("float32")
    queries[7, 3] = np.nan
    for asked in (queries, queries[:1], queries[7:8], queries[:0]):
        expected = call_session(session, ["item", "score"], {"vector": asked})
        found = search.answer(asked, K)
        for name in ("item", "score"):
            assert (found[name].dtype, found[name].shape) == (expected[name].dtype, (len(asked), K))
        np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-5, atol=1e-6)
        for mine, theirs, scores in zip(
            found["item"], expected["item"], found["score"], strict=True
        ):
            # The order of items without a number is onnxruntime's own.
            unknown = np.isnan(scores).all()
            assert sorted(mine) == sorted(theirs) if unknown else [*mine] == [*theirs]


@pytest.mark.parametrize("factory", ["Flat", "HNSW16", "IVF4,Flat", "IVF4,SQ8"])
def test_what_is_no_number_gets_the_first_items(tmp_path, factory):
    search = search_of(tmp_path, IDS["integers"], factory)
    queries = np.repeat(VECTORS[:1], 4, axis=0)
    queries[1, 0], queries[2, 1], queries[3, 2] = np.nan, np.inf, -np.inf
    found = search.answer(queries, K)
    assert found["item"][1:].tolist() == [IDS["integers"][:K].tolist()] * 3
    assert np.isnan(found["score"][1:]).all()
    assert np.isfinite(found["score"][0]).all()
    none = search.answer(queries[:0], K)
    assert none["item"].shape == none["score"].shape == (0, K)


def test_equal_scores_are_in_the_order_of_the_file(tmp_path):
    index = faiss.IndexFlatIP(2)
    vectors = np.array([[1, 0], [2, 0], [1, 0], [2, 0], [0, 5]], "float32")
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / INDEX))
    write_ids(np.array([10, 11, 12, 13, 14]), tmp_path)
    found = ItemSearch(tmp_path).answer(np.array([[1, 0]], "float32"), 5)
    assert found["item"].tolist() == [[11, 13, 10, 12, 14]]
    assert found["score"].tolist() == [[2, 2, 1, 1, 0]]


def test_a_list_that_is_too_short_is_filled_with_the_first_others(tmp_path):
    """One list of four holds about a quarter of the items, so that most places are filled."""
    search = search_of(tmp_path, IDS["integers"], "IVF4,Flat")
    found = search.answer(VECTORS[:3], COUNT)
    for place, (items, scores) in enumerate(zip(found["item"], found["score"], strict=True)):
        count = int(np.isfinite(scores).sum())
        assert 0 < count < COUNT
        # A vector is in the list that is searched for it.
        assert IDS["integers"][place] in items[:count]
        assert (scores[count:] == -np.inf).all()
        others = np.setdiff1d(IDS["integers"], items[:count])
        assert items[count:].tolist() == others.tolist()


def test_ids_of_other_items_are_refused(tmp_path):
    search_of(tmp_path, IDS["integers"])
    write_ids(IDS["integers"][:-1], tmp_path)
    with pytest.raises(RuntimeError, match="299 ids for 300 vectors"):
        ItemSearch(tmp_path)
