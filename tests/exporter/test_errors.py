"""Texts of other packages' errors, with our own advice behind them."""

import pytest

from workflow.errors import in_a_line

SIGNATURE = "onnxruntime::Tensor::Tensor(const onnxruntime::TensorShape&, const OrtMemoryInfo&)"
TEXTS = {
    "": "",
    " \n ": "",
    "No rows": "No rows.",
    "No rows.\n": "No rows.",
    "Which rows?": "Which rows?",
    "x" * 299: "x" * 299 + ".",
    "x" * 301: "x" * 297 + "...",
    "x" * 290 + " " + SIGNATURE: "x" * 290 + "...",
    "x" * 290 + ", " + SIGNATURE: "x" * 290 + "...",
}


# Of onnxruntime, whose text begins with the place in its source.
PLACES = [
    "/src/core/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, const Options&) ",
    "/src/ml/trees.h:624 void onnxruntime::ml::Trees<T>::run(const Tensor*) const [with T = float] ",
    "/src/core/text.cc:235 onnxruntime::Text::Locale::Locale(const std::string&)::<lambda()> ",
    "/src/core/pad.cc:1 auto onnxruntime::(anonymous namespace)::pad<int>::operator()(int) const ",
]


@pytest.mark.parametrize("place", PLACES)
def test_the_reason_is_shown_without_its_place_in_the_source(place):
    text = f"FAIL : {place}Limits (of 3) was false. {place}Received (4)"
    assert in_a_line(RuntimeError(text)) == "FAIL : Limits (of 3) was false. Received (4)."


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_ends_as_a_sentence_does(text):
    assert in_a_line(ValueError(text)) == TEXTS[text]


@pytest.mark.parametrize("length", range(1, 20))
def test_no_word_is_cut(length):
    words = f"{'a' * length} {SIGNATURE} " * 20
    line = in_a_line(ValueError(words))
    assert len(line) <= 300
    assert line.endswith("...")
    shown = line.removesuffix("...").split()
    whole = words.split()[: len(shown)]
    assert [word.rstrip(",") for word in shown[-1:]] == [word.rstrip(",") for word in whole[-1:]]
    assert shown[:-1] == whole[:-1]
