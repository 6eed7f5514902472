import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.classification import task as classification
from albert_tf.classification.reading import Example, read_examples
from albert_tf.classification.settings import Settings
from albert_tf.classification.tasks import TASKS, ClassificationTask
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import Split
from albert_tf.serving import saved_model
from albert_tf.tokenization import FullTokenizer
from tests.conftest import BATCH_SIZE

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f p q r s".split()
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return FullTokenizer(vocab_file=str(path))


@pytest.fixture(name="folder")
def make_folder(tmp_path):
    return RunFolder(str(tmp_path))


def make_set(*examples, task="rte", split="train"):
    return Examples("memory", split, [Example(*example) for example in examples], TASKS[task])


def ids(text):
    return [WORDS.index(word) for word in text.split()]


@pytest.mark.parametrize(
    ("text_a", "text_b", "length", "tokens", "first_length"),
    [
        ("a b c d e f", "p q r s", 10, "[CLS] a b c d [SEP] p q r [SEP]", 6),
        ("a b c d e", "", 6, "[CLS] a b c d [SEP]", 6),
        ("a b", "p", 10, "[CLS] a b [SEP] p [SEP]", 4),
        ("a b", " ", 10, "[CLS] a b [SEP]", 4),
        ("a", "p q r s", 6, "[CLS] a [SEP] p q [SEP]", 3),
        (" ", "p q", 10, "[CLS] [SEP] p q [SEP]", 2),
    ],
)
def test_features_equal_googles(tokenizer, text_a, text_b, length, tokens, first_length):
    data = make_set(("0", text_a, text_b, "entailment"))
    features = classification.make_features(data, tokenizer, length)
    expected = ids(tokens)
    assert features.input_ids.tolist() == expected
    assert features.first_lengths.tolist() == [first_length]
    batch = features.batch(np.array([0]), length)
    assert batch["input_ids"][0].tolist() == expected + [0] * (length - len(expected))
    assert batch["input_mask"].sum() == len(expected)
    assert batch["segment_ids"].sum() == len(expected) - first_length


def test_labels_are_converted_to_ids_in_the_order_of_the_table(tokenizer):
    data = make_set(("0", "a", "b", "not_entailment"), ("1", "a", "b", "entailment"))
    features = classification.make_features(data, tokenizer, 9)
    assert features.columns["label_ids"].tolist() == [1, 0]
    assert features.columns["label_ids"].dtype == np.int32


def test_a_test_example_has_googles_dummy_label(tokenizer):
    for task, dtype in (("rte", np.int32), ("sts-b", np.float32)):
        data = make_set(("0", "a", "b"), task=task, split="test")
        label_ids = classification.make_features(data, tokenizer, 9).columns["label_ids"]
        assert label_ids.tolist() == [0]
        assert label_ids.dtype == dtype


def test_regression_scores_are_not_scaled(tokenizer):
    data = make_set(("0", "a", "b", "3.25"), ("1", "a", "b", "5.000"), task="sts-b")
    label_ids = classification.make_features(data, tokenizer, 9).columns["label_ids"]
    assert label_ids.tolist() == [3.25, 5.0]
    assert label_ids.dtype == np.float32


def test_more_examples_than_are_tokenized_at_once_keep_their_order(tokenizer, monkeypatch):
    monkeypatch.setattr(classification, "EXAMPLES_AT_ONCE", 3)
    letters = "a b c d e f p q".split()
    data = make_set(*((str(n), letter, "", "1") for n, letter in enumerate(letters)), task="sst-2")
    features = classification.make_features(data, tokenizer, 9)
    assert features.input_ids.reshape(8, 3)[:, 1].tolist() == ids("a b c d e f p q")


def test_no_room_for_two_texts_is_rejected(tokenizer):
    with pytest.raises(ValueError, match="--max_seq_length=4: expected 5 or more"):
        classification.make_features(make_set(("0", "a", "b", "entailment")), tokenizer, 4)


def test_truncated_examples_are_counted(tokenizer, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "info", lambda text, *args: logged.append(text % args))
    data = make_set(("7", "a b c d e", "p", "entailment"), ("8", "a", "b", "entailment"))
    classification.make_features(data, tokenizer, 8)
    assert "memory: 1 of 2 examples are longer than max_seq_length=8 and were truncated" in logged
    assert "7 (entailment): [CLS] a b c d [SEP] p [SEP]" in logged


@pytest.mark.parametrize("name", ["cola", "mrpc", "rte", "sst-2"])
@pytest.mark.parametrize("split", ["dev", "test"])
def test_features_match_googles_program(shared, name, split):
    golden = np.load(shared / "golden" / "tasks" / "glue" / f"{name}_{split}.npz")
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    data = read_examples(TASKS[name], str(shared / "data" / "glue"), split)
    count, length = golden["input_ids"].shape
    data = dataclasses.replace(data, examples=data.examples[:count])
    features = classification.make_features(data, tokenizer, length)
    batch = features.batch(np.arange(count), length)
    for key in ("input_ids", "input_mask", "segment_ids", "label_ids"):
        np.testing.assert_array_equal(batch[key], golden[key], err_msg=key)


@pytest.fixture
def batch(tiny_batch):
    inputs = {name: tiny_batch[name] for name in ("input_ids", "input_mask", "segment_ids")}
    return {name: tf.constant(value) for name, value in inputs.items()}


def make_classifier(task, config, tokenizer=None, **settings):
    values = Settings(task_name=task, data_dir="none", output_dir="none", **settings)
    return classification.Classifier(TASKS[task], values, config, tokenizer)


def test_a_checkpoint_is_evaluated_again_if_the_head_or_the_order_of_labels_changed(
    tokenizer, tiny_config
):
    def name(labels=("entailment", "not_entailment"), **settings):
        classifier = make_classifier("rte", tiny_config, tokenizer, max_seq_length=9, **settings)
        classifier.task = dataclasses.replace(classifier.task, labels=labels)
        data = make_set(("0", "a b", "P", None))
        data = dataclasses.replace(data, task=classifier.task)
        split = Split("dev", data, classification.make_features(data, tokenizer, 9))
        classifier.use({"dev": split}, tf.distribute.get_strategy())
        return classifier.measured_on()

    names = [name(), name(("not_entailment", "entailment")), name(use_pooled_output=False)]
    assert len(set(names)) == len(names)
    assert name() == names[0]


def test_the_loss_is_the_mean_and_the_metric_a_sum(tiny_config, batch):
    classifier = make_classifier("mnli", tiny_config)
    assert classifier.selection_metric == "eval_accuracy"
    model = classifier.build_model()
    logits = model(batch)
    labels = np.array([0, 2, 1, 1, 0], np.int32)
    loss, sums = classifier.loss(logits, batch | {"label_ids": tf.constant(labels)})
    logits = logits.numpy()
    assert logits.shape == (BATCH_SIZE, 3)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = -np.log(probabilities[np.arange(5), labels]).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    hits, count = sums["accuracy"]
    assert count == BATCH_SIZE
    assert hits == (logits.argmax(1) == labels).sum()


def test_the_loss_of_a_regression_is_the_mean_squared_error(tiny_config, batch):
    classifier = make_classifier("sts-b", tiny_config)
    logits = classifier.build_model()(batch)
    labels = np.array([0.5, 4.0, 1.25, 3.0, 5.0], np.float32)
    loss, sums = classifier.loss(logits, batch | {"label_ids": tf.constant(labels)})
    squares = (logits.numpy()[:, 0] - labels) ** 2
    np.testing.assert_allclose(loss, squares.mean(), rtol=1e-5)
    np.testing.assert_allclose(sums["MSE"][0], squares.sum(), rtol=1e-5)


def test_the_mean_over_all_positions_can_be_used(tiny_config, batch):
    model = make_classifier("cola", tiny_config, use_pooled_output=False).build_model()
    assert not model.use_pooled_output
    assert model(batch).shape == (BATCH_SIZE, 2)


LOGITS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 0.5], [0.0, 4.0]], np.float32)
LABELS = np.array([0, 1, 1, 0, 1])


def test_results_have_googles_keys():
    keys = {"eval_accuracy", "eval_loss", "loss"}
    assert set(classification.evaluate(TASKS["rte"], LOGITS, LABELS, 2)) == keys
    assert set(classification.evaluate(TASKS["cola"], LOGITS, LABELS, 2)) == keys | {"matthew_corr"}
    assert set(classification.evaluate(TASKS["mrpc"], LOGITS, LABELS, 2)) == keys | {"f1"}
    scores = classification.evaluate(TASKS["sts-b"], LOGITS[:, :1], LABELS * 1.5, 2)
    assert set(scores) == {"MSE", "pearson", "spearman", "eval_loss", "loss"}
    assert scores["MSE"] == scores["eval_loss"]


def test_results_follow_the_definitions():
    found = classification.evaluate(TASKS["cola"], LOGITS, LABELS, 2)
    losses = np.log(1 + np.exp([-2.0, -1.0, 3.0, 0.5, -4.0]))
    assert found == pytest.approx(
        {
            "eval_accuracy": 3 / 5,
            "matthew_corr": (2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2),
            "eval_loss": losses.mean(),
            "loss": (losses[:2].mean() + losses[2:4].mean() + losses[4]) / 3,
        }
    )


def test_predictions_are_written_in_googles_format(folder, tmp_path):
    data = make_set(("7", "a", "b"), ("9", "c", "d"), task="rte", split="test")
    probabilities = np.array([[0.1, 0.9], [0.75, 0.25]], np.float32)
    paths = classification.write_predictions(folder, data, probabilities)
    assert [path.rsplit("/", 1)[1] for path in paths] == [
        "test_results.tsv",
        "submit_results.tsv",
        "RTE.tsv",
    ]
    assert (tmp_path / "test_results.tsv").read_text() == "0.1\t0.9\n0.75\t0.25\n"
    submission = "index\tprediction\n7\tnot_entailment\n9\tentailment\n"
    assert (tmp_path / "submit_results.tsv").read_text() == submission
    assert (tmp_path / "RTE.tsv").read_text() == submission


def test_scores_are_written_unchanged(folder, tmp_path):
    data = make_set(("0", "a", "b"), ("1", "c", "d"), task="sts-b", split="test")
    classification.write_predictions(folder, data, np.array([[5.1], [-0.3]], np.float32))
    assert (tmp_path / "test_results.tsv").read_text() == "5.1\n-0.3\n"
    assert (tmp_path / "STS-B.tsv").read_text() == "index\tprediction\n0\t5.1\n1\t-0.3\n"


def read_json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_clue_predictions_have_ids_and_labels(folder, tmp_path):
    data = make_set(("3", "a"), ("test-1", "b"), task="tnews", split="test")
    probabilities = np.eye(15, dtype=np.float32)[[5, 14]]
    classification.write_predictions(folder, data, probabilities)
    assert read_json_lines(tmp_path / "tnews_predict.json") == [
        {"id": 3, "label": "106", "label_desc": ""},
        {"id": 1, "label": "116", "label_desc": ""},
    ]
    assert not list(tmp_path.glob("*.tsv.*"))


def test_copa_predicts_the_more_probable_choice(folder, tmp_path):
    data = make_set(*((f"test-{n}", "p", "q") for n in range(4)), task="copa", split="test")
    right = np.array([0.6, 0.7, 0.4, 0.1], np.float32)
    classification.write_predictions(folder, data, np.stack([1 - right, right], axis=1))
    assert read_json_lines(tmp_path / "copa_predict.json") == [
        {"id": 0, "label": "1"},
        {"id": 1, "label": "0"},
    ]


def test_predictions_of_other_examples_are_rejected(folder, tmp_path):
    with pytest.raises(ValueError, match="longer than"):
        classification.write_predictions(folder, make_set(("0", "a")), np.zeros((3, 2)))
    assert not list(tmp_path.iterdir())


def test_a_custom_task_works_like_any_other(tokenizer, folder, tmp_path):
    task = ClassificationTask("tsv", "", {}, labels=("x", "y", "z"))
    data = Examples("memory", "test", [Example("test-0", "a")], task)
    assert classification.make_features(data, tokenizer, 9).input_ids.tolist() == ids(
        "[CLS] a [SEP]"
    )
    classification.write_predictions(folder, data, np.array([[0.0, 0.25, 0.75]]))
    assert (tmp_path / "submit_results.tsv").read_text() == "index\tprediction\ntest-0\tz\n"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("pooled", [True, False])
def test_an_export_takes_texts_and_returns_labels(tiny_config, tokenizer, tmp_path, pooled):
    values = Settings(
        task_name="mnli", data_dir="none", output_dir="none", use_pooled_output=pooled
    )
    task = classification.Classifier(TASKS["mnli"], values, tiny_config, tokenizer)
    model = task.build_model()
    exported = task.make_export(model, 9, RunFolder(""))
    path = saved_model.export(str(tmp_path), model.variables, exported, {})
    rows = [("a b c d e f", "P q r s"), ("e", ""), ("", "")]
    texts, others = (tf.constant(column) for column in zip(*rows, strict=True))
    served = tf.saved_model.load(path).signatures["texts"](text_a=texts, text_b=others)

    padding = "longest" if pooled else "max_length"
    logits = model(tokenizer(rows, max_length=9, padding=padding))
    np.testing.assert_allclose(served["probabilities"], tf.nn.softmax(logits), atol=1e-6)
    predictions = np.argmax(logits, axis=1)
    np.testing.assert_array_equal(served["predictions"], predictions)
    labels = [TASKS["mnli"].labels[number] for number in predictions]
    assert [label.decode() for label in served["labels"].numpy()] == labels
