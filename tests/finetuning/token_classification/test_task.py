"""Token classification as a task: the tags of a model, windows, loss and files."""

import dataclasses
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.engine import FineTuning
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.token_classification import Settings, task
from albert_tf.finetuning.token_classification.reading import read_data
from albert_tf.finetuning.token_classification.sentences import Sentence, write_predictions
from albert_tf.finetuning.token_classification.tags import Tags, recorded_tags
from albert_tf.finetuning.token_classification.windows import NO_LABEL, make_windows

TAGS = Tags(("B-LOC", "B-PER", "I-LOC", "I-PER", "O"))


def settings_for(folder, **values):
    return Settings(data_dir=str(folder), output_dir="out", **values)


def record(folder, tags, **changes):
    """Writes the record of a model that was trained with these tags, and returns its folder."""
    trained = RunFolder(str(folder))
    described = {"name": "token_classification", "labels": list(tags.labels)}
    details = {"token_units": tags.units}
    trained.write_record(RunRecord(task=described | details | changes))
    return trained


# The tags of a model


def test_tags_are_those_of_the_model_unless_it_is_trained(tmp_path):
    (tmp_path / "train.txt").write_text("a I-PER\nb O\n")
    (tmp_path / "dev.txt").write_text("a I-PER\n")
    found = Tags(("I-PER", "O"), units="characters")
    trained, unknown = record(tmp_path, TAGS), RunFolder(str(tmp_path / "unknown"))
    for use, folder, tags in (
        ({"do_eval": True}, trained, TAGS),
        ({"do_eval": True, "tag_scheme": "raw"}, trained, Tags(TAGS.labels, is_raw=True)),
        ({"do_eval": True}, unknown, found),
        ({"do_train": True}, trained, found),
    ):
        assert read_data(settings_for(tmp_path, **use), folder)[0] == tags


def test_tags_that_are_unknown_are_refused_and_those_without_spans_are_raw(tmp_path):
    message = r"no train data in .*: it is empty\. .* It is needed for the labels"
    with pytest.raises(FileNotFoundError, match=message):
        read_data(settings_for(tmp_path), RunFolder("model"))
    assert recorded_tags(record(tmp_path, TAGS, name="classification")) is None
    assert recorded_tags(record(tmp_path, Tags(("NN", "VB")))).is_raw


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("Bà sống ở Huế.", "Huế"),
        (unicodedata.normalize("NFD", "Bà sống ở Huế."), unicodedata.normalize("NFD", "Huế")),
        ("विद्वान् पढ़ते हैं।", "विद्वान्"),
        ("พ่ออยู่ที่ โรม", "พ่ออยู่ที่"),
        ("சொல் கோவில்.", "கோவில்"),
        (unicodedata.normalize("NFD", "로마 에서"), unicodedata.normalize("NFD", "로마")),
    ],
)
@pytest.mark.parametrize("units", ["words", "characters"])
def test_spans_of_raw_text_keep_the_marks_of_their_last_letter(
    tmp_path, tiny_config, toy_tokenizer, text, span, units
):
    """Also where each mark is a character of its own, which the model does not see as a part."""
    tags = Tags(TAGS.labels, units=units)
    tagger = task.TokenClassifier(settings_for(tmp_path), tiny_config, toy_tokenizer, (tags, {}))
    begin, last = text.index(span), text.index(span) + len(span) - 1
    while unicodedata.category(text[last]).startswith("M"):
        last -= 1
    labels = [
        "B-LOC" if place == begin else "I-LOC" if begin < place <= last else "O"
        for _, place in tagger._words(text)
    ]
    (found,) = tagger._spans(text, labels)
    assert found == {"type": "LOC", "text": span, "begin": begin, "end": begin + len(span)}


# Windows


def features_of(tokenizer, tokens, labels, max_seq_length=11):
    """Returns the pieces and the labels of each window of a sentence."""
    sentence = Sentence(1, tuple(tokens.split()), tuple(labels.split()))
    data = Examples("train.txt", [sentence])
    windows = make_windows(data.examples, tokenizer, max_seq_length).with_labels(TAGS.labels)
    rows = [windows.batch(np.array([n]), size) for n, size in enumerate(windows.lengths)]
    pieces = [tokenizer.convert_ids_to_tokens(row["input_ids"][0]) for row in rows]
    return [" ".join(row) for row in pieces], [row["label_ids"][0].tolist() for row in rows]


def test_the_first_piece_of_each_token_has_its_label(tokenizer):
    pieces, labels = features_of(tokenizer, "The Rivers , 河船", "O B-LOC O B-PER")
    assert pieces == ["[CLS] the riv ##er ##s , 河 船 [SEP]"]
    assert labels == [[-1, 4, 0, -1, -1, 4, 1, -1, -1]]


def test_sentencepiece_tokens_are_normalized_and_start_a_word(toy_tokenizer):
    pieces, labels = features_of(toy_tokenizer, "Thé RIVER", "O B-LOC")
    the, river = (toy_tokenizer.tokenize(word) for word in ("the", "river"))  # by its release
    assert the[0].startswith("▁")
    assert river[0].startswith("▁")
    assert pieces == [" ".join(["[CLS]", *the, *river, "[SEP]"])]
    assert labels == [[-1, 4, *[-1] * (len(the) - 1), 0, *[-1] * (len(river) - 1), -1]]


def test_a_token_without_pieces_becomes_unknown(tokenizer):
    pieces, labels = features_of(tokenizer, "the \u0301 boat", "O B-LOC O")
    assert pieces == ["[CLS] the [UNK] boat [SEP]"]
    assert labels == [[-1, 4, 0, 4, -1]]


def test_long_sentences_are_split_between_tokens_and_lose_none(tokenizer):
    labels = "O B-LOC I-LOC O B-PER"
    assert features_of(tokenizer, "the rivers boat the rivers", labels, 6) == (
        ["[CLS] the riv ##er ##s [SEP]", "[CLS] boat the [SEP]", "[CLS] riv ##er ##s [SEP]"],
        [[-1, 4, 0, -1, -1, -1], [-1, 2, 4, -1], [-1, 1, -1, -1, -1]],
    )
    pieces, _ = features_of(tokenizer, "the rivers", "O O", 3)
    assert pieces == ["[CLS] the [SEP]", "[CLS] riv [SEP]"]


def test_a_batch_is_padded_with_tokens_that_have_no_label(tokenizer):
    sentences = [Sentence(1, ("the", "boat"), ("O", "B-LOC")), Sentence(4, ("rivers",), (None,))]
    data = Examples("test.txt", sentences)
    windows = make_windows(data.examples, tokenizer, 11).with_labels(TAGS.labels)
    batch = windows.batch(np.array([1, 0]), 7)
    # An unknown label has id 0, which marks the position of the token.
    assert batch["label_ids"].tolist() == [[-1, 0, -1, -1, -1, -1, -1], [-1, 4, 0, -1, -1, -1, -1]]
    assert batch["input_mask"].tolist() == [[1] * 5 + [0] * 2, [1] * 4 + [0] * 3]
    assert batch["segment_ids"].sum() == 0
    assert len(windows) == 2


# Loss, metrics and files


@pytest.fixture(name="classifier")
def make_classifier(tiny_config, tokenizer):
    return task.TokenClassifier(settings_for("data"), tiny_config, tokenizer, (TAGS, {}))


def test_the_loss_is_the_mean_over_all_tokens_of_the_batch_or_of_its_micro_batches(classifier):
    rng = np.random.default_rng(5)
    logits = tf.constant(rng.normal(size=(3, 7, 5)), tf.float32)
    labels = np.full((3, 7), NO_LABEL, np.int32)
    labels[0, 1:6] = rng.integers(5, size=5)
    labels[1, 1:3] = [4, 0]
    labels[2, 2] = 3
    batch = {"input_ids": tf.zeros((3, 7), tf.int32), "label_ids": tf.constant(labels)}
    probabilities = tf.nn.softmax(logits).numpy()[labels >= 0]
    expected = -np.log(probabilities[np.arange(8), labels[labels >= 0]])
    prepared = FineTuning(classifier, {}, tf.distribute.get_strategy())
    loss, sums = prepared.loss(logits, batch)
    np.testing.assert_allclose(loss, expected.mean(), rtol=1e-5)
    hits = (logits.numpy().argmax(-1) == labels).sum()
    assert [float(value) for value in sums["accuracy"]] == [hits, 8.0]
    weights = prepared.loss_weights(batch)
    parts = [
        prepared.loss(logits[rows], {name: x[rows] for name, x in batch.items()}, weights)[0]
        for rows in (slice(0, 1), slice(1, 3))
    ]
    np.testing.assert_allclose(sum(parts), loss, rtol=1e-6)


def test_predictions_are_converted_to_labels_and_evaluated(classifier, tokenizer):
    gold = ("B-LOC", "I-LOC", "O", "B-PER")
    data = Examples("dev.txt", [Sentence(1, ("河", "船", "the", "rivers"), gold)])
    split = Split("dev", data, make_windows(data.examples, tokenizer, 6).with_labels(TAGS.labels))
    # Two windows, "河 船 the" and "rivers"; only first pieces of tokens count.
    outputs = {"predictions": np.array([[3, 0, 2, 4, 3, 3], [1, 2, 1, 1, 1, 1]])}
    assert classifier.predicted_labels(split, outputs) == [("B-LOC", "I-LOC", "O", "I-LOC")]
    metrics = classifier.measure(split, outputs, 1)
    assert (metrics["precision"], metrics["recall"], metrics["accuracy"]) == (0.5, 0.5, 0.75)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("O", "河\tB-LOC\tB-LOC\n船\tO\tI-LOC\n\n雨\tO\tO\n\n"),
        (None, "河\tB-LOC\n船\tI-LOC\n\n雨\tO\n\n"),
    ],
)
def test_files_have_the_columns_of_conlleval(tmp_path, label, text):
    sentences = [Sentence(1, ("河", "船"), ("B-LOC", "O")), Sentence(4, ("雨",), (label,))]
    data = Examples("test.txt", sentences)
    data = dataclasses.replace(data, has_labels=label is not None)
    write_predictions(str(tmp_path / "x.tsv"), data, [("B-LOC", "I-LOC"), ("O",)])
    assert (tmp_path / "x.tsv").read_text() == text
