"""Classification as a task: features, losses, metrics, and the files of predictions."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.classification import Settings, reading
from albert_tf.finetuning.classification import task as classification
from albert_tf.finetuning.classification.tasks import TASKS, ClassificationTask
from albert_tf.finetuning.engine import FineTuning
from albert_tf.finetuning.splits import Split
from albert_tf.model.tokenization import FullTokenizer
from tests.finetuning.conftest import ids_of
from tests.read_classes import PHASES, encoded


def make_classifier(task, config=None, tokenizer=None, **settings):
    values = Settings(task_name=task, data_dir="none", output_dir="none", **settings)
    return classification.Classifier(values, config, tokenizer, (TASKS[task], {}))


def make_features(task, data, tokenizer=None):
    return make_classifier(task, tokenizer=tokenizer).make_features(data, "train")


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
    data = encoded([("0", text_a, text_b, "entailment")], tokenizer, length)
    features = make_features("rte", data, tokenizer)
    assert features.input_ids.tolist() == ids_of(tokens)
    assert features.first_lengths.tolist() == [first_length]


@pytest.mark.parametrize(
    ("task", "predictions"),
    [("rte", [1, 0, 1]), ("sts-b", [-1.0, 3.0, 0.5])],
)
def test_an_export_serves_the_most_likely_label_of_each_row_or_its_score(task, predictions):
    logits = tf.constant([[-1.0, 2.0], [3.0, 1.0], [0.5, 0.75]])
    served = make_classifier(task).served_outputs(logits)
    np.testing.assert_array_equal(served["predictions"], predictions)


@pytest.mark.parametrize(
    ("task", "labels", "expected"),
    [
        ("rte", ("not_entailment", "entailment"), np.array([1, 0], np.int32)),
        ("rte", (None, None), np.array([0, 0], np.int32)),  # Google's dummy label
        ("sts-b", ("3.25", "5.000"), np.array([3.25, 5.0], np.float32)),
        ("sts-b", (None, None), np.array([0, 0], np.float32)),
    ],
)
def test_labels_are_ids_in_the_order_of_the_table_or_scores(tokenizer, task, labels, expected):
    data = encoded([("0", "a", "b", label) for label in labels], tokenizer, 9)
    label_ids = make_features(task, data, tokenizer).columns["label_ids"]
    np.testing.assert_array_equal(label_ids, expected, strict=True)


@pytest.mark.parametrize("name", ["cola", "mrpc", "rte", "sst-2"])
@pytest.mark.parametrize("split", ["dev", "test"])
def test_examples_and_features_match_googles_program(shared, name, split):
    golden = np.load(shared / "golden" / "tasks" / "glue" / f"{name}_{split}.npz")
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    count, length = golden["input_ids"].shape
    settings = Settings(
        task_name=name,
        data_dir=str(shared / "data" / "glue"),
        output_dir="out",
        max_seq_length=length,
        **{PHASES[split]: True},
    )
    data = reading.read_data(settings, tokenizer)[1][split].take(range(count))
    assert [example.guid for example in data.examples] == golden["guid"].tolist()
    assert TASKS[name].labels == tuple(golden["labels"].tolist())
    features = make_features(name, data, tokenizer)
    batch = features.batch(np.arange(count), length)
    for key in ("input_ids", "input_mask", "segment_ids", "label_ids"):
        np.testing.assert_array_equal(batch[key], golden[key], err_msg=key)


# Training and evaluation


def test_a_checkpoint_is_evaluated_again_if_head_labels_features_or_batches_changed(tokenizer):
    def measured_on(task="rte", labels=("entailment", "not_entailment"), length=9, **settings):
        classifier = make_classifier(task, tokenizer=tokenizer, max_seq_length=length, **settings)
        classifier.labels = labels
        data = encoded([("0", "a", "b", "entailment")], tokenizer, length)
        split = Split("dev", data, classifier.make_features(data, "dev"))
        return FineTuning(classifier, {"dev": split}, tf.distribute.get_strategy()).measured_on()

    others = {
        measured_on("qnli"),
        measured_on(labels=("not_entailment", "entailment")),
        measured_on(use_pooled_output=False),
        measured_on(eval_batch_size=9),
        measured_on(length=11),
    }
    assert len({*others, measured_on(), measured_on(do_lower_case=True)}) == 6


LOGITS = np.array([[2, 0], [0, 1], [3, 0], [0, 0.5], [0, 4]], np.float32)
LABELS = np.array([0, 1, 1, 0, 1])
LOSSES = np.log(1 + np.exp([-2.0, -1.0, 3.0, 0.5, -4.0]))


@pytest.mark.parametrize(
    ("task", "logits", "labels", "losses", "sums"),
    [
        ("cola", LOGITS, LABELS, LOSSES, {"accuracy": (3, 5)}),
        ("sts-b", LOGITS[:, :1], LABELS, [4, 1, 4, 0, 1], {"MSE": (10, 5)}),
    ],
)
def test_the_loss_is_a_mean_and_the_training_metric_a_sum(
    tiny_config, task, logits, labels, losses, sums
):
    batch = {"input_ids": tf.zeros((5, 7), tf.int32), "label_ids": tf.constant(labels)}
    prepared = FineTuning(make_classifier(task, tiny_config), {}, tf.distribute.get_strategy())
    loss, found = prepared.loss(tf.constant(logits), batch)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)
    assert {name: tuple(map(float, pair)) for name, pair in found.items()} == sums


def measured(classifier, logits, label_ids):
    """The metrics of examples with these labels, in batches of two."""
    names = classifier.labels
    if classifier.definition.is_multi_label:
        labels = [tuple(np.array(names)[row > 0].tolist()) for row in label_ids]
    else:
        labels = [names[label] if names else str(label) for label in label_ids]
    data = encoded([("0", "a", "", label) for label in labels])
    return classifier.measure(Split("dev", data, None), {"logits": logits}, 2)


def test_results_have_googles_keys_and_follow_the_definitions():
    def measure(name, logits, label_ids):
        return measured(make_classifier(name), logits, label_ids)

    keys = {"eval_accuracy", "eval_loss", "loss"}
    assert set(measure("rte", LOGITS, LABELS)) == keys
    assert set(measure("mrpc", LOGITS, LABELS)) == keys | {"f1"}
    scores = measure("sts-b", LOGITS[:, :1], LABELS * 1.5)
    assert set(scores) == {"MSE", "pearson", "spearman", "eval_loss", "loss"}
    assert scores["MSE"] == scores["eval_loss"]
    found = measure("cola", LOGITS, LABELS)
    assert found == pytest.approx(
        {
            "eval_accuracy": 3 / 5,
            "matthew_corr": (2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2),
            "eval_loss": LOSSES.mean(),
            "loss": (LOSSES[:2].mean() + LOSSES[2:4].mean() + LOSSES[4]) / 3,
        }
    )


TOPICS = ClassificationTask("topics", "", {}, ("a", "b", "c"), is_multi_label=True)
# A probability of just 0.5 does not give a label; one that is larger by any amount does.
AT_THE_THRESHOLD = np.float32([[0, 1e-4, -1e-4], [0.4, 0, 9]])


def test_a_label_is_given_above_a_probability_of_one_half_everywhere(tiny_config):
    settings = Settings(task_name="tsv", data_dir="none", output_dir="none")
    classifier = classification.Classifier(settings, tiny_config, None, (TOPICS, {}))
    logits = tf.constant(AT_THE_THRESHOLD)
    served = classifier.served_outputs(logits)
    np.testing.assert_array_equal(served["predictions"], [[0, 1, 0], [1, 0, 1]])
    outputs = {name: value.numpy() for name, value in classifier.predictions(logits).items()}
    assert [row["labels"] for row in classifier.results([], None, outputs)] == [["b"], ["a", "c"]]
    targets = np.int32([[0, 1, 0], [1, 1, 1]])
    metrics = measured(classifier, AT_THE_THRESHOLD, targets)
    assert (metrics["eval_accuracy"], metrics["f1_a"], metrics["f1_b"]) == (0.5, 1.0, 2 / 3)
    batch = {"label_ids": tf.constant(targets)}
    np.testing.assert_array_equal(classifier.losses(logits, batch)[1]["accuracy"], [True, False])


# Predictions


@pytest.mark.parametrize(
    ("task", "probabilities", "table", "predictions"),
    [
        ("rte", [[0.1, 0.9], [0.75, 0.25]], "0.1\t0.9\n0.75\t0.25\n", "not_entailment entailment"),
        ("sts-b", [[5.1], [-0.3]], "5.1\n-0.3\n", "5.1 -0.3"),
    ],
)
def test_predictions_are_written_in_googles_format(
    tmp_path, task, probabilities, table, predictions
):
    split = Split("test", encoded([("7", "a"), ("9", "c")]), None)
    outputs = {"probabilities": np.array(probabilities, np.float32)}
    classifier = make_classifier(task)
    assert classifier.write_predictions(RunFolder(str(tmp_path)), split, outputs, 1) == ""
    first, second = predictions.split()
    submission = f"index\tprediction\n7\t{first}\n9\t{second}\n"
    names = ("test_results.tsv", "submit_results.tsv", TASKS[task].leaderboard_file)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    texts = [(tmp_path / name).read_text() for name in names]
    assert texts == [table, submission, submission]


@pytest.mark.parametrize(
    ("task", "guids", "probabilities", "labels"),
    [
        ("tnews", ["3", "test-1"], np.eye(15)[[5, 14]], [(3, "106"), (1, "116")]),
        (  # The answer is the more probable of two choices.
            "copa",
            ["test-0", "test-1", "test-2", "test-3"],
            np.array([[0.4, 0.6], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]]),
            [(0, "1"), (1, "0")],
        ),
        ("copa", ["7", "7", "5", "5"], np.eye(2)[[1, 0, 0, 1]], [(7, "0"), (5, "1")]),
    ],
)
def test_clue_predictions_have_ids_and_labels(tmp_path, task, guids, probabilities, labels):
    split = Split("test", encoded([(guid, "p", "q") for guid in guids]), None)
    outputs = {"probabilities": probabilities}
    classifier = make_classifier(task)
    classifier.write_predictions(RunFolder(str(tmp_path)), split, outputs, 1)
    lines = (tmp_path / f"{task}_predict.json").read_text().splitlines()
    more = {"label_desc": ""} if task == "tnews" else {}
    expected = [{"id": number, "label": label, **more} for number, label in labels]
    assert [json.loads(line) for line in lines] == expected
