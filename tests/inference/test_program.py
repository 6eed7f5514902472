"""run_predict.py by its command line, within the test process."""

from __future__ import annotations

import numpy as np
import pytest

import albert_tf
from tests.inference.conftest import LONG, TEXTS, write_folder


@pytest.fixture(scope="module")
def texts_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def test_each_line_of_a_file_gets_a_result_with_its_number(predict, saved, tmp_path):
    pairs = [(text, TEXTS[0]) for text in TEXTS]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    model = f"--model_dir={saved('regression')}"
    found = predict(model, f"--input_file={tmp_path}/pairs.tsv", "--precision=float32")
    expected = albert_tf.load_predictor(saved("regression"))(pairs)
    assert [row["line"] for row in found] == [1, 2, 3, 4]
    scores = [row["score"] for row in expected]
    np.testing.assert_allclose([row["score"] for row in found], scores, atol=1e-6)
    flags = [f"--text={text}" for text, _ in pairs] + [f"--text_b={b}" for _, b in pairs]
    given = predict(model, "--precision=float32", *flags)
    assert [set(row) for row in given] == [{"score"}] * 4
    np.testing.assert_allclose([row["score"] for row in given], scores, atol=1e-6)


def test_a_question_and_its_context_or_options_are_given_by_flags(predict, saved):
    context, question = "The river was wide.", "What was wide?"
    (found,) = predict(
        f"--model_dir={saved('spans')}", f"--question={question}", f"--context={context}"
    )
    assert found["answer"] in context
    (found,) = predict(
        f"--model_dir={saved('multiple_choice')}",
        *(f"--context={context}", "--question=Is it _?", "--options=wide,old"),
    )
    assert found["answer"] == ["wide", "old"][found["prediction"]]


@pytest.mark.parametrize(("flag", "used"), [("auto", "float32"), ("bfloat16", "bfloat16")])
def test_a_model_that_was_trained_in_float32_predicts_in_it(
    predict, tmp_path, config_file, toy_spm_model, caplog, flag, used
):
    caplog.set_level("INFO", logger="absl")
    record = {"settings": {"precision": "float32"}}
    write_folder(tmp_path, config_file, toy_spm_model, record=record)
    predict(f"--model_dir={tmp_path}", "--text=The rain.", f"--precision={flag}")
    (said,) = (text for text in caplog.messages if text.startswith("device "))
    assert f", {used}: " in said


def test_texts_that_are_too_long_are_counted(predict, saved, tmp_path, caplog):
    path = tmp_path / "texts.txt"
    path.write_text(f"{LONG}\nThe rain.\n{LONG}\n")
    predict(f"--model_dir={saved('classification')}", f"--input_file={path}")
    said = [text for text in caplog.messages if "longer than" in text]
    assert said == ["2 texts are longer than max_seq_length=90: only a part of each was read"]


def test_embeddings_are_printed_or_written_to_a_file(
    predict, pretrained_dir, texts_file, tmp_path, monkeypatch
):
    """The file is that of `np.save`, although a block at a time is computed and written."""
    monkeypatch.setattr("albert_tf.inference.inputs.ROWS_AT_ONCE", 3)
    arguments = [
        f"--model_dir={pretrained_dir}",
        f"--input_file={texts_file}",
        "--precision=float32",
    ]
    printed = predict(*arguments)
    array = tmp_path / "new" / "texts.npy"
    assert predict(*arguments, f"--embeddings_file={array}") == []
    expected = albert_tf.load_predictor(str(pretrained_dir))(TEXTS)
    assert np.load(array).dtype == np.float32
    np.testing.assert_allclose(np.load(array), expected, atol=1e-6)
    values = np.float32([row["embedding"] for row in printed])
    np.testing.assert_array_equal(values, np.load(array))
    np.save(tmp_path / "expected.npy", values)
    assert array.read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_texts_are_compared_and_searched(predict, pretrained_dir, texts_file, tmp_path):
    arguments = [f"--model_dir={pretrained_dir}", "--similarity", "--precision=float32"]
    (same,) = predict(*arguments, "--text=The river", "--text_b=the  RIVER")
    assert same == {"similarity": pytest.approx(1)}
    (tmp_path / "pairs.tsv").write_text("The river\tthe RIVER\n")
    (same,) = predict(*arguments, f"--input_file={tmp_path}/pairs.tsv")
    assert same == {"line": 1, "similarity": pytest.approx(1)}
    found = predict(*arguments, f"--text={TEXTS[1]}", f"--input_file={texts_file}", "--top_k=3")
    assert found[0] == {"line": 2, "similarity": pytest.approx(1), "text": TEXTS[1]}
    scores = [row["similarity"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    with pytest.raises(ValueError, match=r"texts\.txt, line 1: expected two texts"):
        predict(*arguments, f"--input_file={texts_file}")
