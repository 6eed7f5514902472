"""Token classification: windows, loss, files, and the tags of a model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import Split
from albert_tf.token_classification import Settings, task
from albert_tf.token_classification.reading import Sentence
from albert_tf.token_classification.tags import Tags
from albert_tf.tokenization import FullTokenizer

TAGS = Tags(("B-LOC", "B-PER", "I-LOC", "I-PER", "O"), "iob2")


def settings_for(folder, **values):
    return Settings(data_dir=str(folder), output_dir="out", **values)


def record(folder, tags, **changes):
    """Writes the record of a model that was trained with these tags, and returns its folder."""
    trained = RunFolder(str(folder))
    described = {"name": "token_classification", "labels": list(tags.labels)}
    trained.write_record(RunRecord(task=described | task.details_of(tags) | changes))
    return trained


@pytest.fixture(name="warnings")
def warnings_of_the_log(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: lines.append(text % args))
    return lines


def test_words_that_raw_text_does_not_have_are_counted(tmp_path, warnings):
    (tmp_path / "train.txt").write_text("John B-PER\n's O\n10:30/11:30 O\n")
    task.find_tags(settings_for(tmp_path))
    assert '1 of 3 tokens, such as "\'s"' in warnings[0]


def test_tags_are_those_of_the_model_unless_it_is_trained(tmp_path, tiny_config):
    (tmp_path / "train.txt").write_text("a I-PER\nb O\n")
    found = Tags(("I-PER", "O"), "iob1", "characters")
    unknown = RunFolder(str(tmp_path / "unknown"))
    assert task.find_tags(settings_for(tmp_path), unknown) == found
    trained = record(tmp_path, TAGS)
    raw = settings_for(tmp_path, tag_scheme="raw")
    assert task.find_tags(raw, trained) == Tags(TAGS.labels, "raw")
    assert task.find_tags(raw) == Tags(("I-PER", "O"), "raw", "characters")
    for is_trained, tags in ((False, TAGS), (True, found)):
        settings = settings_for(tmp_path, do_train=is_trained)
        assert task.TokenClassifier.make(settings, tiny_config, None, trained).tags == tags


def test_unknown_labels_are_an_error(tmp_path):
    message = r"no train\.txt or .*, nor labels in model; it is needed for the labels"
    with pytest.raises(FileNotFoundError, match=message):
        task.find_tags(settings_for(tmp_path), RunFolder("model"))


def test_a_record_of_another_task_has_no_tags_and_a_damaged_one_is_refused(tmp_path):
    other = record(tmp_path, Tags(("0", "1"), "raw"), name="classification")
    assert task.recorded_tags(other) is None
    damaged = record(tmp_path, TAGS, tag_scheme="bio")
    with pytest.raises(ValueError, match=f"{tmp_path}: unknown tag_scheme 'bio'"):
        task.recorded_tags(damaged)


@pytest.fixture(scope="module", name="tokenizer")
def make_tokenizer(tmp_path_factory):
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] 河 船 riv ##er the boat , ##s".split()
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return FullTokenizer(vocab_file=str(path))


def features_of(tokenizer, tokens, labels, max_seq_length=11):
    data = Examples(
        "train.txt", "train", [Sentence(1, tuple(tokens.split()), tuple(labels.split()))]
    )
    windows = task.make_features(data, TAGS.labels, tokenizer, max_seq_length)
    pieces = [
        " ".join(
            tokenizer.convert_ids_to_tokens(windows.batch(np.array([n]), size)["input_ids"][0])
        )
        for n, size in enumerate(windows.lengths)
    ]
    return windows, pieces


def test_the_first_piece_of_each_token_has_its_label(tokenizer):
    windows, pieces = features_of(tokenizer, "The Rivers , 河船", "O B-LOC O B-PER")
    assert pieces == ["[CLS] the riv ##er ##s , 河 船 [SEP]"]
    (ids,) = windows.label_ids
    assert ids.tolist() == [-1, 4, 0, -1, -1, 4, 1, -1, -1]


def test_sentencepiece_tokens_are_normalized_and_start_a_word(toy_tokenizer):
    windows, pieces = features_of(toy_tokenizer, "Thé RIVER", "O B-LOC")
    assert pieces == ["[CLS] ▁the ▁ ri v er [SEP]"]
    assert windows.label_ids[0].tolist() == [-1, 4, 0, -1, -1, -1, -1]


@pytest.mark.parametrize("kind", ["tokenizer", "toy_tokenizer"])
def test_a_token_without_pieces_becomes_unknown(kind, request):
    tokenizer = request.getfixturevalue(kind)
    windows, _ = features_of(tokenizer, "the \u0301 boat", "O B-LOC O", 61)
    ids = windows.batch(np.array([0]), 61)["input_ids"][0]
    (place,) = np.flatnonzero(ids == tokenizer.unk_id)
    assert windows.label_ids[0][place] == 0
    assert (windows.label_ids[0] >= 0).sum() == 3


def test_long_sentences_are_split_between_tokens_and_lose_none(tokenizer, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "info", lambda text, *args: logged.append(text % args))
    labels = "O B-LOC I-LOC O B-PER"
    windows, pieces = features_of(tokenizer, "the rivers boat the rivers", labels, 6)
    assert pieces == [
        "[CLS] the riv ##er ##s [SEP]",
        "[CLS] boat the [SEP]",
        "[CLS] riv ##er ##s [SEP]",
    ]
    assert "1 of 1 sentences are longer than max_seq_length=6" in logged[-1]
    assert logged[-1].endswith("split into 3 windows")
    values = np.full((3, 6), -9)
    for row, ids in enumerate(windows.label_ids):
        values[row, : len(ids)] = ids
    assert [TAGS.labels[n] for n in windows.at_tokens(values)] == labels.split()


def test_a_token_longer_than_a_window_keeps_its_first_pieces(tokenizer):
    windows, pieces = features_of(tokenizer, "the rivers the", "O B-LOC O", 4)
    assert pieces == ["[CLS] the [SEP]", "[CLS] riv ##er [SEP]", "[CLS] the [SEP]"]
    assert [ids.tolist() for ids in windows.label_ids] == [
        [-1, 4, -1],
        [-1, 0, -1, -1],
        [-1, 4, -1],
    ]
    with pytest.raises(ValueError, match="--max_seq_length=2: expected 3 or more"):
        features_of(tokenizer, "the", "O", 2)


def test_a_batch_is_padded_with_tokens_that_have_no_label(tokenizer):
    data = Examples(
        "test.txt",
        "train",
        [Sentence(1, ("the", "boat"), ("O", "B-LOC")), Sentence(4, ("rivers",), (None,))],
    )
    windows = task.make_features(data, TAGS.labels, tokenizer, 11)
    batch = windows.batch(np.array([1, 0]), 7)
    # An unknown label has id 0, which marks the position of the token.
    assert batch["label_ids"].tolist() == [[-1, 0, -1, -1, -1, -1, -1], [-1, 4, 0, -1, -1, -1, -1]]
    assert batch["input_mask"].tolist() == [[1] * 5 + [0] * 2, [1] * 4 + [0] * 3]
    assert batch["segment_ids"].sum() == 0
    assert len(windows) == 2


@pytest.fixture(name="classifier")
def make_classifier(tiny_config, tokenizer):
    return task.TokenClassifier(TAGS, settings_for("data"), tiny_config, tokenizer)


def test_the_loss_is_the_mean_over_all_tokens_of_the_batch(classifier):
    rng = np.random.default_rng(5)
    logits = tf.constant(rng.normal(size=(3, 7, 5)), tf.float32)
    labels = np.full((3, 7), task.NO_LABEL, np.int32)
    labels[0, 1:6] = rng.integers(5, size=5)
    labels[1, 1:3] = [4, 0]
    labels[2, 2] = 3
    batch = {"input_ids": tf.zeros((3, 7), tf.int32), "label_ids": tf.constant(labels)}
    probabilities = tf.nn.softmax(logits).numpy()[labels >= 0]
    expected = -np.log(probabilities[np.arange(8), labels[labels >= 0]])
    loss, sums = classifier.loss(logits, batch)
    np.testing.assert_allclose(loss, expected.mean(), rtol=1e-5)
    hits = (logits.numpy().argmax(-1) == labels).sum()
    assert [float(value) for value in sums["accuracy"]] == [hits, 8.0]
    # The losses of micro-batches with different numbers of tokens add up to the same.
    weights = classifier.loss_weights(batch)
    parts = [
        classifier.loss(logits[n : n + 1], {k: v[n : n + 1] for k, v in batch.items()}, weights)[0]
        for n in range(3)
    ]
    np.testing.assert_allclose(sum(parts), loss, rtol=1e-5)


def test_predictions_are_converted_to_labels_and_evaluated(classifier, tokenizer):
    gold = ("B-LOC", "I-LOC", "O", "B-PER")
    data = Examples("dev.txt", "train", [Sentence(1, ("河", "船", "the", "rivers"), gold)])
    features = task.make_features(data, TAGS.labels, tokenizer, 6)
    split = Split("dev", data, features)
    # Two windows, "河 船 the" and "rivers"; only first pieces of tokens count.
    outputs = {"predictions": np.array([[3, 0, 2, 4, 3, 3], [1, 2, 1, 1, 1, 1]])}
    assert classifier.predicted_labels(split, outputs) == [("B-LOC", "I-LOC", "O", "I-LOC")]
    metrics = classifier.measure(split, outputs, 1)
    assert (metrics["precision"], metrics["recall"], metrics["accuracy"]) == (0.5, 0.5, 0.75)


def test_the_evaluation_digest_depends_on_data_and_tags(classifier, tiny_config, tokenizer):
    other = task.TokenClassifier(
        Tags(TAGS.labels, "raw"), classifier.settings, tiny_config, tokenizer
    )

    def name(which, labels, **settings):
        labels = tuple(labels.split())
        data = Examples("dev.txt", "dev", [Sentence(1, ("word",) * len(labels), labels)])
        which.settings = settings_for("data", **settings)
        split = Split("dev", data, which.make_features(data, "dev"))
        which.use({"dev": split}, tf.distribute.get_strategy())
        return which.measured_on()

    found = {name(classifier, "O B-LOC"), name(classifier, "O O"), name(other, "O B-LOC")}
    assert len(found) == 3
    assert name(classifier, "O B-LOC", eval_batch_size=3) in found


def test_files_have_the_columns_of_conlleval(tmp_path):
    data = Examples(
        "test.txt",
        "train",
        [Sentence(1, ("河", "船"), ("B-LOC", "O")), Sentence(4, ("雨",), ("O",))],
    )
    guesses = [("B-LOC", "I-LOC"), ("O",)]
    path = tmp_path / "predictions.tsv"
    task.write_predictions(str(path), data, guesses)
    assert path.read_text() == "河\tB-LOC\tB-LOC\n船\tO\tI-LOC\n\n雨\tO\tO\n\n"
    data.examples[1] = Sentence(4, ("雨",), (None,))
    task.write_predictions(str(path), data, guesses)
    assert path.read_text() == "河\tB-LOC\n船\tI-LOC\n\n雨\tO\n\n"


def test_a_folder_with_checkpoints_for_other_labels_is_rejected(classifier, tmp_path):
    classifier.check_trained(record(tmp_path, TAGS), is_training=True)
    other = record(tmp_path, Tags(("B-ORG", "O"), "iob2"))
    message = "a model with the labels B-ORG, O, but the task has B-LOC"
    with pytest.raises(ValueError, match=message):
        classifier.check_trained(other, is_training=False)
