"""Tests that predictors compute the same numbers as the programs that trained the models."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.classification.task import read_dev_predictions
from albert_tf.cli import convert_checkpoint
from albert_tf.inference.embeddings import similarities
from albert_tf.serving import openvino_engine
from albert_tf.tokenization import find_words
from tests.inference.conftest import CONTEXTS, QUESTIONS, TEXTS, write_folder

LONG = "The river carries the rain. " * 400  # 11,200 characters
SIZE = 12
TAGS = {"name": "token_classification", "labels": ["B-LOC", "I-LOC", "O"], "tag_scheme": "iob2"}


@pytest.fixture(scope="module")
def classify(classifier_dir):
    return albert_tf.load_predictor(str(classifier_dir))


def test_batches_of_mixed_lengths_match_single_texts(classify):
    texts = [*TEXTS, LONG, "\U0001f600\U0001f6a3", " \t "]
    together = classify(texts)
    alone = [classify(text) for text in texts]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(
            list(one["probabilities"].values()), list(other["probabilities"].values()), atol=1e-6
        )
    assert classify([]) == []


def test_pairs_are_passed_as_pairs_or_as_two_arguments(classify):
    pairs = [("The river", "A boat"), ("The town", "The sea")]
    assert classify(pairs) == classify(["The river", "The town"], ["A boat", "The sea"])
    with pytest.raises(ValueError, match=r"texts\[1\] is 5"):
        classify(["a", 5])


LABELS = ["people", "town", "water"]


@pytest.fixture(scope="module")
def multi_label(multi_label_dir):
    """Returns texts, and the probabilities of LABELS by the formula, [N, K]."""
    texts = [text or "It" for text in TEXTS]
    classify = albert_tf.load_predictor(str(multi_label_dir))
    logits = np.concatenate([classify.model(classify.tokenizer(text)) for text in texts])
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert 0 < np.sum(probabilities > 0.5) < probabilities.size
    return texts, probabilities


def check_labels(folder, texts, probabilities):
    found = albert_tf.load_predictor(str(folder))(texts)
    for row, values in zip(found, probabilities, strict=True):
        assert list(row["probabilities"]) == LABELS
        np.testing.assert_allclose(list(row["probabilities"].values()), values, atol=1e-5)
        assert row["labels"] == [n for n, x in zip(LABELS, values, strict=True) if x > 0.5]
    return [row["labels"] for row in found]


@pytest.mark.ci
def test_any_number_of_labels_is_answered_and_written_alike(multi_label_dir, multi_label):
    found = check_labels(multi_label_dir, *multi_label)
    written = np.loadtxt(multi_label_dir / "test_results.tsv")
    np.testing.assert_allclose(written, multi_label[1], atol=1e-5)
    _, *lines = (multi_label_dir / "submit_results.tsv").read_text().splitlines()
    assert [json.loads(line.split("\t")[1]) for line in lines] == found
    header, *lines = (multi_label_dir / "dev_predictions.tsv").read_text().splitlines()
    assert header.split("\t") == ["line", "guid", "labels", "predictions", *LABELS]
    truth = [["water"], ["water", "town"], [], ["people"]]
    assert [json.loads(line.split("\t")[2]) for line in lines] == truth
    assert read_dev_predictions(RunFolder(str(multi_label_dir))) == ([], [])  # no confusion matrix
    hits = np.mean([set(names) == set(n) for names, n in zip(found, truth, strict=True)])
    results = (multi_label_dir / "eval_results.txt").read_text()
    assert f"eval_accuracy = {np.float32(hits)}\n" in results
    assert all(f"f1_{label} = " in results for label in LABELS)


@pytest.mark.ci
def test_any_number_of_labels_is_served(multi_label_dir, multi_label):
    texts, probabilities = multi_label
    (export,) = (multi_label_dir / "export").iterdir()
    served = tf.saved_model.load(str(export)).signatures["texts"](
        text_a=tf.constant(texts), text_b=tf.constant([""] * len(texts))
    )
    np.testing.assert_allclose(served["probabilities"], probabilities, atol=1e-5)
    names = [[n.decode() for n in row if n] for row in served["labels"].numpy()]
    assert names == check_labels(export, texts, probabilities)


@pytest.mark.ci
def test_any_number_of_labels_is_converted(multi_label_dir, multi_label, tmp_path):
    there, back = tmp_path / "hf", tmp_path / "back"
    as_hugging_face(multi_label_dir, there)
    config = json.loads((there / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert list(config["id2label"].values()) == LABELS
    check_labels(there, *multi_label)
    settings = convert_checkpoint.Settings(input=str(there), output=str(back))
    assert convert_checkpoint.convert(settings)
    check_labels(back, *multi_label)


def as_hugging_face(source, target):
    """Converts a model to a folder as transformers writes it: config.json alone tells the task."""
    pytest.importorskip("safetensors")
    settings = convert_checkpoint.Settings(
        input=str(source), output=str(target), output_format="huggingface"
    )
    assert convert_checkpoint.convert(settings)
    (target / "run.json").unlink()


@pytest.mark.ci
def test_answers_match_the_program_and_their_offsets(answers_dir):
    answer = albert_tf.load_predictor(str(answers_dir), top_k=2)
    expected = json.loads((answers_dir / "predictions.json").read_text())
    nbest = json.loads((answers_dir / "nbest_predictions.json").read_text())
    odds = json.loads((answers_dir / "null_odds.json").read_text())
    found = answer.predict([(question, CONTEXTS[n]) for _, n, question, _ in QUESTIONS])
    for (name, number, question, _), result in zip(QUESTIONS, found, strict=True):
        assert result["answer"] == expected[name]
        assert result["null_odds"] == pytest.approx(odds[name], abs=1e-5)
        assert [a["answer"] for a in result["answers"]] == [a["text"] for a in nbest[name]][:2]
        for entry in result["answers"]:
            assert CONTEXTS[number][entry["begin"] : entry["end"]] == entry["answer"] != ""
        alone = answer(question, CONTEXTS[number])
        assert alone["answer"] == result["answer"]
    pairs = [(question, CONTEXTS[n]) for _, n, question, _ in QUESTIONS]
    assert answer(*map(list, zip(*pairs, strict=True))) == answer(pairs) == found
    with pytest.raises(ValueError, match="expected a context for each question"):
        answer(["Where?"])
    json.dumps(found)


def test_above_the_threshold_there_is_no_answer(answers_dir):
    answer = albert_tf.load_predictor(str(answers_dir))
    answer.task.null_threshold = -1e9
    result = answer(QUESTIONS[0][2], CONTEXTS[0])
    assert (result["answer"], result["begin"], result["end"]) == ("", -1, -1)
    assert result["answers"][0]["answer"]


def test_unusual_contexts_have_an_answer_or_none(answers_dir):
    answer = albert_tf.load_predictor(str(answers_dir))
    answer.task.null_threshold = None
    lost = "\u0301"  # a lone accent, which normalization removes
    together = answer.predict([("what", lost), ("what", "\U0001f600"), ("where", LONG)])
    for result in (together[0], answer("what", lost)):
        assert (result["answer"], result["begin"], result["answers"]) == ("", -1, [])
    for result in together[1:]:
        assert result["answer"]


@pytest.fixture(scope="module")
def tag_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"output_weights": (3, SIZE), "output_bias": (3,)}
    folder = tmp_path_factory.mktemp("tags")
    write_folder(folder, config_file, toy_spm_model, heads)
    RunFolder(str(folder)).write_record(RunRecord(task=TAGS))
    return folder


@pytest.fixture(scope="module")
def tag(tag_dir):
    return albert_tf.load_predictor(str(tag_dir))


def test_tokens_have_labels_and_spans_have_offsets(tag):
    text = "The river, and the boat at the landing."
    result = tag(text)
    assert result["tokens"] == "The river , and the boat at the landing .".split()
    assert len(result["labels"]) == len(result["scores"]) == 10
    assert min(result["scores"]) > 1 / 3
    assert result["spans"]
    for span in result["spans"]:
        assert text[span["begin"] : span["end"]] == span["text"]
    assert tag([result["tokens"]])[0]["labels"] == result["labels"]
    assert tag(["", text])[0] == {"tokens": [], "labels": [], "scores": [], "spans": []}
    long = tag(LONG)  # several windows
    assert len(long["labels"]) == 400 * 6


def test_a_tagger_of_characters_tags_the_characters_of_raw_text(tag_dir, tmp_path):
    folder = shutil.copytree(tag_dir, tmp_path / "characters")
    RunFolder(str(folder)).write_record(RunRecord(task=TAGS | {"token_units": "characters"}))
    tag = albert_tf.load_predictor(str(folder))
    text = "at 1987 abf"
    result = tag(text)
    assert result["tokens"] == list("at1987abf")
    given = tag([result["tokens"]])[0]
    assert given["labels"] == result["labels"]
    for span, of_list in zip(result["spans"], given["spans"], strict=True):
        assert text[span["begin"] : span["end"]] == span["text"]
        assert of_list["text"] == span["text"].replace(" ", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("U.N. aid (1,000 t)", "U.N . aid ( 1,000 t )"),
        ("他在北京, don't!", "他 在 北 京 , don't !"),
        ("2008年 ...", "2008 年 . . ."),
        (" ", ""),
    ],
)
def test_text_is_split_into_words(text, words):
    found = find_words(text)
    assert " ".join(word for word, _ in found) == words
    assert all(text[begin:].startswith(word) for word, begin in found)


def test_the_option_with_the_best_logit_is_chosen(tmp_path, config_file, toy_spm_model):
    heads = {"output_weights": (1, SIZE), "output_bias": (1,)}
    write_folder(tmp_path, config_file, toy_spm_model, heads)
    choose = albert_tf.load_predictor(str(tmp_path), "multiple_choice")
    passage, options = "The river carries the rain.", ["the sea", "a boat", "nobody"]
    result = choose(passage, "Where is _?", options)
    rows = choose.tokenizer([(passage, f"Where is {option}?") for option in options])
    inputs = {name: value[None] for name, value in rows.items()}
    expected = tf.nn.softmax(choose.model(inputs)).numpy()[0]
    np.testing.assert_allclose(result["probabilities"], expected, atol=1e-6)
    assert result["answer"] == options[result["prediction"]] == options[expected.argmax()]
    other = choose(passage, "What is it?", options[:2])
    questions = ["Where is _?", "What is it?"]
    together = choose([passage] * 2, questions, [options, options[:2]])
    for found, alone in zip(together, (result, other), strict=True):
        assert found["answer"] == alone["answer"]
        np.testing.assert_allclose(found["probabilities"], alone["probabilities"], atol=1e-6)
    with pytest.raises(ValueError, match="2 passages: expected a list of options for each"):
        choose([passage] * 2, questions, options)


@pytest.mark.ci
@pytest.mark.parametrize("pooling", ["mean", "mean_last_4", "pooled"])
def test_embeddings_are_means_over_the_tokens(pretrained_dir, pooling):
    embed = albert_tf.load_predictor(str(pretrained_dir), pooling=pooling)
    texts = [*TEXTS, "\U0001f600"]
    found = embed(texts)
    for text, row in zip(texts, found, strict=True):
        outputs = embed.model(embed.tokenizer([text]), output_hidden_states=True)
        layers = outputs["hidden_states"][1:][-4:]
        expected = {
            "mean": tf.reduce_mean(outputs["sequence_output"][0], axis=0),
            "mean_last_4": tf.reduce_mean(tf.stack([layer[0] for layer in layers]), axis=(0, 1)),
            "pooled": outputs["pooled_output"][0],
        }[pooling]
        np.testing.assert_allclose(row, expected, atol=1e-5)
    assert embed("The river").shape == (SIZE,)
    assert embed([]).shape == (0, SIZE)


def test_similarities_are_cosines():
    first = np.array([[1, 2, 2], [0, 0, 0]], np.float32)
    second = np.array([[2, 1, 2], [1, 1, 1]], np.float32)
    np.testing.assert_allclose(similarities(first, second), [8 / 9, 0], rtol=1e-6)


@pytest.fixture(scope="module")
def fill_mask(pretrained_dir):
    return albert_tf.load_predictor(str(pretrained_dir), "fill_mask", top_k=3)


def test_masks_are_filled_with_the_best_words(fill_mask):
    texts = ["The [MASK] carries the rain.", "A [MASK] waits at the [MASK]"]
    found = fill_mask(texts)
    assert [len(result["masks"]) for result in found] == [1, 2]
    tokenizer = fill_mask.tokenizer
    the, rest = tokenizer.encode_batch(["The", "carries the rain."])
    ids = [tokenizer.cls_id, *the, tokenizer.mask_id, *rest, tokenizer.sep_id]
    logits = fill_mask.model(np.array([ids]))["masked_lm_logits"][0, 1 + len(the)]
    known = tf.nn.softmax(logits).numpy()[: tokenizer.vocab_size]  # the embedding table is larger
    known[: tokenizer.mask_id + 1] = known[tokenizer.vocab["▁"]] = 0
    expected = tf.math.top_k(known, 3)
    scores = [entry["score"] for entry in found[0]["masks"][0]]
    np.testing.assert_allclose(scores, expected.values, rtol=1e-5)
    best = tokenizer.detokenize(tokenizer.convert_ids_to_tokens([int(expected.indices[0])]))
    assert found[0]["masks"][0][0]["token"] == best
    assert found[0]["text"] == f"The {best} carries the rain."
    json.dumps(found)


def test_text_right_after_a_mask_has_no_leading_space(fill_mask):
    tokenizer = fill_mask.tokenizer
    for text, after in (("The [MASK].", ["."]), ("[MASK]s", ["s"]), ("[MASK] .", ["▁", "."])):
        ids, (place,) = fill_mask.task._encode(text)
        assert tokenizer.convert_ids_to_tokens(ids[place + 1 : -1]) == after


def test_long_texts_are_reduced_to_a_window_around_the_masks(fill_mask):
    for text in (LONG + "[MASK]", "[MASK]" + LONG, LONG + "[MASK]" + LONG):
        assert len(fill_mask(text)["masks"]) == 1
    with pytest.raises(ValueError, match="tokens apart"):
        fill_mask("[MASK]" + LONG + "[MASK]")
    with pytest.raises(ValueError, match=r"no \[MASK\] in 'The river'"):
        fill_mask("The river")


@pytest.mark.slow
def test_openvino_returns_the_same_results(pretrained_dir):
    """Of models that were not fine-tuned; test_doors_agree.py has the others."""
    pytest.importorskip("openvino", reason="openvino is an extra")
    texts = ["The [MASK].", "A [MASK] and [MASK]"]
    found, filled = {}, {}
    for engine in ("tensorflow", "openvino"):
        embed, fill = (
            albert_tf.load_predictor(str(pretrained_dir), task, engine=engine)
            for task in ("embeddings", "fill_mask")
        )
        found[engine] = embed(TEXTS)
        filled[engine] = [words for row in fill(texts) for words in row["masks"]]
        assert embed.engine == fill.engine == engine
    np.testing.assert_allclose(found["openvino"], found["tensorflow"], atol=1e-4)
    for ours, theirs in zip(*map(np.ravel, filled.values()), strict=True):
        assert ours["token"] == theirs["token"]
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)


def test_tensorflow_computes_if_openvino_is_not_installed(pretrained_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert albert_tf.load_predictor(str(pretrained_dir)).engine == "tensorflow"
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[openvino\]'"):
        albert_tf.load_predictor(str(pretrained_dir), engine="openvino")


@pytest.mark.ci
def test_tensorflow_computes_what_openvino_cannot(pretrained_dir, monkeypatch, caplog):
    monkeypatch.setattr(openvino_engine, "is_installed", lambda: True)
    monkeypatch.setattr(openvino_engine, "_compile", lambda *_: 1 / 0)  # as unsupported operations
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    wanted = albert_tf.load_predictor(str(pretrained_dir), engine="tensorflow")(TEXTS)
    embed = albert_tf.load_predictor(str(pretrained_dir))
    np.testing.assert_array_equal(embed(TEXTS), wanted)
    np.testing.assert_array_equal(embed(TEXTS), wanted)
    (message,) = [text for text in caplog.messages if "OpenVINO" in text]
    assert "OpenVINO cannot run this model" in message
    assert "division by zero. Computing with tensorflow instead" in message
    with pytest.raises(ValueError, match="OpenVINO cannot run this model, use engine=tensorflow"):
        albert_tf.load_predictor(str(pretrained_dir), engine="openvino")(TEXTS)


def test_an_export_answers_by_its_weights_and_its_graph_is_not_loaded(regression_dir, tmp_path):
    (export,) = (regression_dir / "export").iterdir()
    export = shutil.copytree(export, tmp_path / "export")
    (export / "saved_model.pb").write_bytes(b"not a graph")
    pairs = [(text, TEXTS[0]) for text in [*TEXTS, LONG, "\U0001f600"]]
    found = albert_tf.load_predictor(str(export), batch_size=3)(pairs)
    wanted = albert_tf.load_predictor(str(regression_dir))(pairs)
    scores = [[row["score"] for row in rows] for rows in (found, wanted)]
    np.testing.assert_allclose(*scores, atol=2e-5)
    embed = albert_tf.load_predictor(str(export), "embeddings")
    assert embed(TEXTS).shape == (len(TEXTS), SIZE)


def test_settings_of_the_training_alone_do_not_matter(tmp_path, config_file, toy_spm_model):
    heads = {"output_weights": (2, SIZE), "output_bias": (2,)}
    folder = write_folder(tmp_path, config_file, toy_spm_model, heads)
    flags = {"report_to": ["wandb"], "learning_rate": [1e-5, 2e-5], "max_seq_length": 17}
    RunFolder(str(folder)).write_record(RunRecord(settings=flags))
    classify = albert_tf.load_predictor(str(folder))  # on a machine without wandb
    assert (classify.labels, classify.max_seq_length) == (("0", "1"), 17)


def test_invalid_options_are_rejected(pretrained_dir):
    engines = "'auto', 'tensorflow', 'openvino'"
    with pytest.raises(ValueError, match=f"engine='fast': expected one of {engines}"):
        albert_tf.load_predictor(str(pretrained_dir), engine="fast")
    with pytest.raises(ValueError, match="pooling='max': expected one of 'mean'"):
        albert_tf.load_predictor(str(pretrained_dir), pooling="max")
    with pytest.raises(ValueError, match="top_k=0: expected 1 or more"):
        albert_tf.load_predictor(str(pretrained_dir), top_k=0)
    with pytest.raises(ValueError, match="max_seq_length=4: expected 5 or more"):
        albert_tf.load_predictor(str(pretrained_dir), max_seq_length=4)
    with pytest.raises(ValueError, match="max_position_embeddings"):
        albert_tf.load_predictor(str(pretrained_dir), max_seq_length=1000)
