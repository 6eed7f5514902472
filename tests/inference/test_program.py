"""Tests run_predict.py by its command line, within the test process."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

import albert_tf
from albert_tf.inference import embeddings
from tests.inference.conftest import CONTEXTS, QUESTIONS, TEXTS, write_folder


@pytest.fixture(scope="module")
def texts_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


def test_a_file_of_pairs_gets_the_scores_of_the_program(predict, regression_dir):
    found = predict(f"--model_dir={regression_dir}", f"--input_file={regression_dir}/test.tsv")
    assert [set(row) for row in found] == [{"line", "score"}] * len(TEXTS)
    expected = np.loadtxt(regression_dir / "test_results.tsv")
    np.testing.assert_allclose([row["score"] for row in found], expected, atol=1e-6)


@pytest.mark.ci
def test_repeated_texts_get_a_result_each(predict, regression_dir):
    model, pairs = f"--model_dir={regression_dir}", [("The river", "A boat"), ("It", "The sea")]
    flags = [[f"--text={text}", f"--text_b={text_b}"] for text, text_b in pairs]
    alone = [predict(model, *given)[0]["score"] for given in flags]
    together = [row["score"] for row in predict(model, *flags[0], *flags[1])]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_a_question_gets_the_answer_of_the_program(predict, answers_dir):
    expected = json.loads((answers_dir / "predictions.json").read_text())
    name, number, question, _ = QUESTIONS[0]
    (found,) = predict(
        f"--model_dir={answers_dir}", f"--question={question}", f"--context={CONTEXTS[number]}"
    )
    assert found["answer"] == expected[name]


def test_only_a_flag_that_was_passed_is_a_reason_for_the_precision(predict, classifier_dir, caplog):
    caplog.set_level("INFO", logger="absl")
    given = [f"--model_dir={classifier_dir}", "--text=The rain."]
    for flags, is_flag in (([], False), (["--precision=float32"], True)):
        caplog.clear()
        predict(*given, *flags)
        (said,) = (text for text in caplog.messages if text.startswith("device "))
        assert ", float32: " in said
        assert ("--precision" in said) == is_flag


def test_texts_that_are_too_long_are_counted(predict, classifier_dir, tmp_path, caplog):
    path = tmp_path / "texts.txt"
    long = "The river carries the rain. " * 9
    path.write_text("".join(f"{text}\n" for text in [long, "The rain.", long]))
    predict(f"--model_dir={classifier_dir}", f"--input_file={path}")
    said = [text for text in caplog.messages if "longer than" in text]
    assert said == ["2 texts are longer than max_seq_length=17: only a part of each was read"]
    caplog.clear()
    predict(f"--model_dir={classifier_dir}", "--text=The rain.")
    assert not [text for text in caplog.messages if "longer than" in text]


def test_the_checkpoint_is_logged_once(predict, classifier_dir, caplog):
    caplog.set_level("INFO", logger="absl")
    predict(f"--model_dir={classifier_dir}", "--text=The river")
    assert caplog.text.count("contains several checkpoints") == 1


def test_bad_rows_are_rejected(predict, pretrained_dir, tmp_path):
    path = tmp_path / "masked.txt"
    path.write_bytes(b"The [MASK]\nnone\n\xff\n")
    arguments = [f"--model_dir={pretrained_dir}", "--mask", f"--input_file={path}", "--top_k=2"]
    with pytest.raises(ValueError, match=r"txt, line 2: no \[MASK\] .*\n.*txt, line 3: not UTF-8"):
        predict(*arguments)


def test_embeddings_replace_neither_the_input_nor_the_model(predict, pretrained_dir, texts_file):
    (vocabulary,) = pretrained_dir.glob("*.model")
    before = vocabulary.read_bytes()
    for path, flag in ((texts_file, "--input_file"), (vocabulary, "--model_dir")):
        with pytest.raises(ValueError, match=f"--embeddings_file: .* is an input, {flag}"):
            predict(
                f"--model_dir={pretrained_dir}",
                f"--input_file={texts_file}",
                f"--embeddings_file={path}",
            )
    assert vocabulary.read_bytes() == before
    assert len(texts_file.read_text().splitlines()) == len(TEXTS)


@pytest.mark.ci
def test_embeddings_are_written_as_an_array_or_lines(predict, pretrained_dir, texts_file, tmp_path):
    arguments = [
        f"--model_dir={pretrained_dir}",
        f"--input_file={texts_file}",
        "--precision=float32",
    ]
    printed = predict(*arguments)
    array, lines = tmp_path / "texts.npy", tmp_path / "texts.jsonl"
    assert predict(*arguments, f"--embeddings_file={array}") == []
    assert predict(*arguments, f"--embeddings_file={lines}") == []
    expected = albert_tf.load_predictor(str(pretrained_dir))(TEXTS)
    assert np.load(array).dtype == np.float32
    for rows in (printed, [json.loads(line) for line in lines.read_text().splitlines()]):
        np.testing.assert_array_equal(
            np.float32([row["embedding"] for row in rows]), np.load(array)
        )
    np.testing.assert_allclose(np.load(array), expected, atol=1e-6)


def test_no_temporary_file_of_embeddings_is_left_by_sigterm(
    predict, pretrained_dir, texts_file, tmp_path, monkeypatch
):
    written = []

    def stop(row):
        written.extend(tmp_path.iterdir())
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(embeddings, "as_json", stop)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit, match="143"):
        predict(
            f"--model_dir={pretrained_dir}",
            f"--input_file={texts_file}",
            f"--embeddings_file={tmp_path / 'texts.jsonl'}",
        )
    signal.signal(signal.SIGTERM, before)
    assert [path.suffix for path in written] == [".tmp"]
    assert not list(tmp_path.iterdir())


def test_texts_are_compared_and_searched(predict, pretrained_dir, texts_file):
    arguments = [f"--model_dir={pretrained_dir}", "--similarity", "--precision=float32"]
    (same,) = predict(*arguments, "--text=The river", "--text_b=the  RIVER")
    assert same["similarity"] == pytest.approx(1)
    found = predict(*arguments, f"--text={TEXTS[1]}", f"--input_file={texts_file}", "--top_k=3")
    assert found[0] == {"line": 2, "similarity": pytest.approx(1), "text": TEXTS[1]}
    scores = [row["similarity"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    with pytest.raises(ValueError, match=r"texts\.txt, line 1: expected two texts"):
        predict(*arguments, f"--input_file={texts_file}")


def test_options_are_separated_by_commas(
    predict, pretrained_dir, tmp_path, config_file, toy_spm_model
):
    heads = {"output_weights": (1, 12), "output_bias": (1,)}
    write_folder(tmp_path, config_file, toy_spm_model, heads)
    arguments = ["--task=multiple_choice", "--context=The river.", "--question=Is it _?"]
    (found,) = predict(f"--model_dir={tmp_path}", *arguments, "--options=wide,old")
    assert found["answer"] == ["wide", "old"][found["prediction"]]
    with pytest.raises(ValueError, match="no head for the task multiple_choice"):
        predict(
            f"--model_dir={pretrained_dir}",
            "--task=multiple_choice",
            "--options=a,b",
            "--context=c",
        )
