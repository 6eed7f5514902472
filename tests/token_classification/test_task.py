"""Token classification: sentences, tags, spans and metrics, windows, loss and files."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import Split
from albert_tf.token_classification import Settings, task
from albert_tf.token_classification.task import Sentence, Tags, find_spans
from albert_tf.tokenization import FullTokenizer

CONLL = """\
-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official  NN  I-NP  O
Ekeus NNP I-NP I-PER

heads VBZ I-VP O


. . O O
"""
TAGS = Tags(("B-LOC", "B-PER", "I-LOC", "I-PER", "O"), "iob2")


def settings_for(folder, **values):
    return Settings(data_dir=str(folder), output_dir="out", **values)


def read(folder, text, split="train", labels=(), name=None, **values):
    (folder / (name or f"{split}.txt")).write_bytes(text.encode())
    return task.read_sentences(settings_for(folder, **values), split, labels)


def record(folder, tags, **changes):
    """Writes the record of a model that was trained with these tags, and returns its folder."""
    trained = RunFolder(str(folder))
    described = {"name": "token_classification", "labels": list(tags.labels)}
    trained.write_record(RunRecord(task=described | task.details_of(tags) | changes))
    return trained


def labeled(*sentences):
    """Returns sentences with the given labels and arbitrary tokens."""
    rows, line = [], 1
    for labels in map(str.split, sentences):
        rows.append(Sentence(line, ("word",) * len(labels), tuple(labels)))
        line += len(labels) + 1
    return Examples("train.txt", "train", rows)


@pytest.fixture(name="warnings")
def warnings_of_the_log(monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: lines.append(text % args))
    return lines


# Sentences


def test_conll_columns_are_read_sentence_by_sentence(tmp_path):
    data = read(tmp_path, CONLL)
    assert [s.tokens for s in data.examples] == [("U.N.", "official", "Ekeus"), ("heads",), (".",)]
    assert data.examples[0].labels == ("I-ORG", "O", "I-PER")
    assert [s.line for s in data.examples] == [3, 7, 10]
    chunks = read(tmp_path, CONLL, label_column=2, token_column=1)
    assert chunks.examples[0] == Sentence(3, ("NNP", "NN", "NNP"), ("I-NP",) * 3)


def test_chinese_has_one_character_per_line_and_an_ideographic_space_is_one(tmp_path):
    text = "\ufeff河\tB-LOC\r\n\u3000\tO\r\n\r\n船\tO\r\n"
    data = read(tmp_path, text, name="train.conll")
    assert [s.tokens for s in data.examples] == [("河", "\u3000"), ("船",)]
    assert data.examples[0].labels == ("B-LOC", "O")
    assert read(tmp_path, "\u3000 O\n河 O\n", "dev").examples[0].tokens == ("\u3000", "河")


def test_the_checksum_depends_on_tokens_and_labels(tmp_path):
    checksums = {read(tmp_path, text).checksum() for text in ("a O\nb O\n", "a O\n\nb O\n", "a X")}
    assert len(checksums) == 3
    assert read(tmp_path, "\n\na  O\nb O").checksum() == read(tmp_path, "a O\nb O\n").checksum()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", r"train\.txt, line 2: no label in column -1 of 1"),
        ("a O\n\n\tO\n", r"train\.txt, line 3: no token in column 0 of 2"),
        ("a\tO\nb\t\n", r"train\.txt, line 2: no label in column -1 of 2"),
        ("a O\nb B-PRE\n", r"line 2: unknown label 'B-PRE'; expected B-LOC, B-PER, "),
        ("\n \n", r"train\.txt: contains no usable sentence"),
    ],
)
def test_a_bad_line_is_rejected_with_its_number(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, labels=TAGS.labels)


def test_all_bad_lines_are_named(tmp_path):
    text = "a O\nb\n\nc O\n\nd B-PRE\n"
    with pytest.raises(ValueError, match=r"line 2: no label .*\n.*txt, line 6: unknown label"):
        read(tmp_path, text, labels=TAGS.labels)


def test_a_test_file_may_lack_labels_but_not_tokens(tmp_path, warnings):
    data = read(tmp_path, "a\nb O\n\nc B-PRE\n", "test", TAGS.labels)
    assert [s.labels for s in data.examples] == [(None, "O"), (None,)]
    assert not data.has_labels
    assert "no known label" in warnings[0]
    with pytest.raises(ValueError, match=r"line 2: no token"):
        read(tmp_path, "a O\n\tO\n", "test", TAGS.labels)


def test_a_split_has_one_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no dev\.txt or dev\.conll or dev\.tsv"):
        task.read_sentences(settings_for(tmp_path), "dev")
    for name in ("dev.txt", "dev.tsv"):
        (tmp_path / name).write_text("a O\n")
    with pytest.raises(ValueError, match=r"dev\.txt and dev\.tsv: keep only one"):
        task.read_sentences(settings_for(tmp_path), "dev")


# Tags


@pytest.mark.parametrize(
    ("sentence", "scheme"),
    [
        ("O B-PER I-PER O", "iob2"),
        ("O I-PER I-PER B-PER", "iob1"),
        ("B-PER I-LOC O", "iob1"),
        ("S-PER B-PER I-PER E-PER O", "bioes"),
        ("B M E S", "bmes"),
        ("B-PER M-PER E-PER O", "bmes"),
        ("U-PER B-LOC I-LOC L-LOC O", "bilou"),
        ("W-PER B-LOC M-LOC E-LOC O", "bmewo"),
    ],
)
def test_the_scheme_is_detected(sentence, scheme):
    tags = task.recognize_tags(labeled(sentence))
    assert tags == Tags(tuple(sorted(set(sentence.split()))), scheme)


@pytest.mark.parametrize(
    ("sentences", "scheme", "message"),
    [
        (["O O"], "auto", r"train\.txt: 1 different labels \(O\), expected 2 to 1000"),
        (["NN O", "VB"], "auto", r"line 1: label 'NN' does not belong to the scheme iob2 or iob1"),
        (
            ["B-PER O", "E-PER O"],
            "iob2",
            r"line 4: label 'E-PER' does not belong to the scheme iob2\.",
        ),
        (["B-PER O", "-PER O"], "auto", "line 4: label '-PER' does not belong"),
        (["NN O"], "auto", "label 'NN' does not belong .* --tag_scheme=raw"),
        (["B-PER O", "B-Per O"], "auto", r"'B-PER' \(line 1\) and 'B-Per' \(line 4\) differ only"),
    ],
)
def test_labels_that_do_not_mark_spans_are_rejected(sentences, scheme, message):
    with pytest.raises(ValueError, match=message):
        task.recognize_tags(labeled(*sentences), scheme)


@pytest.mark.parametrize("label", ["Q-PER", "O-PER", "B_PER"])
def test_labels_of_an_unknown_scheme_are_not_taken_as_raw(label):
    with pytest.raises(ValueError, match="does not belong to the scheme") as raised:
        task.recognize_tags(labeled(f"{label} O"))
    assert "raw" not in str(raised.value)


def of_tokens(*sentences):
    rows = [Sentence(1, tuple(tokens), ("O",) * len(tokens)) for tokens in sentences]
    return Examples("train.txt", "train", rows)


@pytest.mark.parametrize(
    ("sentences", "units"),
    [
        (["他在1987年买abf"], "characters"),
        (["他在北京"], "characters"),  # no letter or digit tells
        ([["他", "在", "1987", "年", "买", "abf"]], "words"),
        (["U.N. official Ekeus heads for Baghdad .".split(), ["a", "b"]], "words"),
        (["他在1987年", "买了一个", ["QQ", "群"]], "characters"),  # one token that was left whole
    ],
)
def test_the_units_of_the_training_data_are_found(sentences, units):
    assert task.find_units(of_tokens(*sentences)) == units


@pytest.mark.parametrize(
    ("tokens", "units", "text"),
    [
        ("1 9 8 7", "characters", "1987"),
        ("New York", "words", "New York"),
        ("北 京", "words", "北京"),
        ("在 New York 的", "words", "在New York的"),
    ],
)
def test_tokens_are_joined_as_they_were_cut(tokens, units, text):
    assert task.join_tokens(tokens.split(), units) == text


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


# Spans and metrics


@pytest.mark.parametrize(
    ("labels", "spans"),
    [
        # IOB2.
        ("B-P I-P O B-L B-L", [("P", 0, 2), ("L", 3, 4), ("L", 4, 5)]),
        # IOB1: a span starts with I; with B only if it directly follows one of the same type.
        ("I-P I-P B-P I-L O I-L", [("P", 0, 2), ("P", 2, 3), ("L", 3, 4), ("L", 5, 6)]),
        # BIOES.
        ("S-P B-P I-P E-P S-L O", [("P", 0, 1), ("P", 1, 4), ("L", 4, 5)]),
        # BMES, and without types, as in word segmentation.
        ("B-P M-P M-P E-P O S-L", [("P", 0, 4), ("L", 5, 6)]),
        ("B M E S B E", [("", 0, 3), ("", 3, 4), ("", 4, 6)]),
        # BILOU and BMEWO.
        ("U-P B-P I-P L-P U-L O", [("P", 0, 1), ("P", 1, 4), ("L", 4, 5)]),
        ("B-P L-P L-P U-P", [("P", 0, 2), ("P", 2, 3), ("P", 3, 4)]),
        ("W-P B-P M-P E-P W-L", [("P", 0, 1), ("P", 1, 4), ("L", 4, 5)]),
        # Invalid sequences: a change of type, an end without a start, a continuation after an end.
        ("B-P I-L", [("P", 0, 1), ("L", 1, 2)]),
        ("O E-P O", [("P", 1, 2)]),
        ("B-P E-P I-P E-P E-P", [("P", 0, 2), ("P", 2, 4), ("P", 4, 5)]),
        ("S-P I-P B-P", [("P", 0, 1), ("P", 1, 2), ("P", 2, 3)]),
        ("B-P O", [("P", 0, 1)]),
        ("B-GPE-X I-GPE-X", [("GPE-X", 0, 2)]),
        ("O O", []),
    ],
)
def test_spans_are_those_of_conlleval(labels, spans):
    assert find_spans(labels.split()) == spans


def test_raw_labels_are_separate_spans():
    assert find_spans("B-P I-P O NN".split(), "raw") == [
        ("B-P", 0, 1),
        ("I-P", 1, 2),
        ("NN", 3, 4),
    ]


def test_metrics_are_those_computed_by_hand():
    gold = ["B-P I-P O B-L O".split(), "B-L I-L".split()]
    guess = ["B-P I-P O B-P O".split(), "B-L O".split()]
    # Predicted: P 0-2 (correct), P 3-4 (wrong type), L 0-1 (too short). Gold: P, L, L.
    assert task.span_metrics(gold, guess) == pytest.approx(
        {
            **{"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "accuracy": 5 / 7},
            **{"precision_P": 1 / 2, "recall_P": 1, "f1_P": 2 / 3},
            **{"precision_L": 0, "recall_L": 0, "f1_L": 0},
        }
    )


def test_metrics_without_spans_are_zero():
    nothing = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert task.span_metrics([["O"]], [["O"]]) == {**nothing, "accuracy": 1.0}


@pytest.mark.parametrize("letters", ["BI", "BIES", "BMES"])
def test_metrics_are_those_of_seqeval_on_random_labels(letters):
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    labels = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC"))]
    rng = random.Random(5)
    gold = [rng.choices(labels, k=rng.randrange(1, 17)) for _ in range(150)]
    # Half of the labels are correct, so that some spans are.
    guess = [[x if rng.random() < 0.5 else rng.choice(labels) for x in row] for row in gold]
    found = task.span_metrics(gold, guess)
    theirs = [[[x.replace("M-", "I-") for x in row] for row in rows] for rows in (gold, guess)]
    for average, suffixes in (("micro", [""]), (None, ["_LOC", "_PER"])):
        scores = seqeval.precision_recall_fscore_support(*theirs, average=average)
        for name, values in zip(("precision", "recall", "f1"), scores, strict=False):
            names = [name + suffix for suffix in suffixes]
            expected = dict(zip(names, np.ravel(values), strict=True))
            assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert found["accuracy"] == pytest.approx(seqeval.accuracy_score(gold, guess))
    assert found["f1"] > 0.1


# Features


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


# The task


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
        data = labeled(labels)
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
