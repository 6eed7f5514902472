"""Multiple choice as a task: features, loss, metrics and predictions."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.engine import FineTuning
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.race import task as race
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.race.reading import open_race
from albert_tf.finetuning.splits import Split
from albert_tf.model.tokenization import FullTokenizer
from tests.finetuning.conftest import ids_of

OPTIONS = ("x y", "z", "w", "q")


def make_set(*questions):
    return Examples("memory", list(questions))


def make_features(data, tokenizer, max_seq_length, max_qa_length):
    lengths = {"max_seq_length": max_seq_length, "max_qa_length": max_qa_length}
    settings = Settings(data_dir="data", output_dir="out", **lengths)
    return race.MultipleChoice(settings, None, tokenizer).make_features(data, "dev")


def make_question(question="The _ is _ ?", options=OPTIONS, label=1, level=""):
    return Question("m1", "A  B\nC d e f g h", question, options, label, level)


@pytest.mark.parametrize(
    ("question", "lengths", "expected"),
    [
        (
            make_question(),  # The option fills every blank.
            (12, 4),
            ["[CLS] a b c d e [SEP] is x y ? [SEP]", "[CLS] a b c d e [SEP] z is z ? [SEP]"],
        ),
        (
            make_question("what ?", ("1", "ok 1 1 1 1 1")),  # The option follows the question.
            (12, 5),
            ["[CLS] a b c d e f [SEP] what ? 1 [SEP]", "[CLS] a b c d [SEP] 1 1 1 1 1 [SEP]"],
        ),
        # A question with its option that has exactly the maximum length, and one token more.
        (
            make_question("what ?", ("1", "1 1")),
            (12, 3),
            ["[CLS] a b c d e f [SEP] what ? 1 [SEP]", "[CLS] a b c d e f [SEP] ? 1 1 [SEP]"],
        ),
        # A passage that fits exactly, and one that is a token too long.
        (
            make_question("what ?", ("1", "1 1")),
            (14, 4),
            [
                "[CLS] a b c d e f g h [SEP] what ? 1 [SEP]",
                "[CLS] a b c d e f g [SEP] what ? 1 1 [SEP]",
            ],
        ),
        # Without a passage, the question is the first text.
        (
            dataclasses.replace(make_question("what is _ ?", ("1 ok", "ok 1")), passage=""),
            (9, 4),
            ["[CLS] what is [UNK] ? [SEP] 1 ok [SEP]", "[CLS] what is [UNK] ? [SEP] ok 1 [SEP]"],
        ),
        # There is no room for the passage, and too little for the question.
        (make_question(), (7, 9), ["[CLS] [SEP] is x y ? [SEP]", "[CLS] [SEP] z is z ? [SEP]"]),
    ],
)
def test_features_equal_googles(tokenizer, question, lengths, expected):
    features = make_features(make_set(question), tokenizer, *lengths)
    batch = features.batch(np.array([0]), lengths[0])
    sequences = [text.split() for text in expected]
    segments = [[int(n > words.index("[SEP]")) for n in range(len(words))] for words in sequences]
    assert batch["input_ids"][0, :2].tolist() == [ids_of(text) for text in expected]
    assert batch["segment_ids"][0, :2].tolist() == segments
    assert batch["label_ids"].tolist() == [1]


def test_questions_of_a_passage_share_it_and_batches_have_as_many_options_as_they_need(tokenizer):
    other = dataclasses.replace(make_question("what ?", ("1", "ok")), passage="d e")
    questions = [make_question(), other, make_question(options=OPTIONS[:3]), other]
    features = make_features(make_set(*questions), tokenizer, 12, 4)
    assert features.passage_ids.tolist() == ids_of("[CLS] a b c d e f g h [CLS] d e")
    assert (len(features), features.lengths.tolist()) == (4, [12, 8, 12, 8])
    assert features.sequence_lengths[1].tolist() == [8, 8, 0, 0]
    batch = features.batch(np.array([3, 2]), 12)
    assert batch["input_ids"].shape == (2, 3, 12)  # no question of this batch has a fourth option
    assert batch["input_ids"][0].tolist() == [
        ids_of(f"[CLS] d e [SEP] what ? {option} [SEP]") + [0] * 4 for option in ("1", "ok")
    ] + [[0] * 12]
    assert batch["input_ids"][1, 1].tolist() == ids_of("[CLS] a b c d e [SEP] z is z ? [SEP]")
    assert features.batch(np.array([1]), 8)["segment_ids"].shape == (1, 2, 8)
    with pytest.raises(ValueError, match="a sequence has 12 ids, more than seq_length=11"):
        features.batch(np.array([1, 0]), 11)


def test_features_match_googles_program(shared):
    golden = np.load(shared / "golden" / "tasks" / "race" / "dev.npz")
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    data = open_race(str(shared / "data" / "race"), "dev").read_all()
    assert len(data) == 100
    count, _, length = golden["input_ids"].shape
    data = dataclasses.replace(data, examples=data.examples[:count])
    ids = [question.example_id for question in data.examples]
    assert ids == golden["example_id"].tolist()
    batch = make_features(data, tokenizer, length, 64).batch(np.arange(count), length)
    for key in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(batch[key], golden[key], err_msg=key)
    np.testing.assert_array_equal(batch["label_ids"], golden["label_id"])


LOGITS = np.array([[9, 0, 0], [0, 9, 0], [0, 9, 0], [0, 0, 9], [9, 0, -10000.0]], np.float32)
LABELS = (0, 1, 2, 2, 0)
WRONG, RIGHT, PAIR = np.log(2 + np.exp(9)), np.log(1 + 2 * np.exp(-9)), np.log(1 + np.exp(-9))


def test_the_loss_is_the_mean_over_questions(tiny_config):
    task = race.MultipleChoice(Settings(data_dir="data", output_dir="out"), tiny_config, None)
    batch = {"input_ids": tf.zeros((5, 3, 7), tf.int32), "label_ids": tf.constant(LABELS)}
    prepared = FineTuning(task, {}, tf.distribute.get_strategy())
    loss, sums = prepared.loss(tf.constant(LOGITS), batch)
    np.testing.assert_allclose(loss, (3 * RIGHT + WRONG + PAIR) / 5, rtol=1e-5)
    assert [float(value) for value in sums["accuracy"]] == [4, 5]


def test_results_are_reported_overall_and_for_each_level():
    questions = [
        make_question(label=label, level=level)
        for label, level in zip(LABELS, ("middle",) * 2 + ("high",) * 3, strict=True)
    ]
    task = race.MultipleChoice(Settings(data_dir="data", output_dir="out"), None, None)

    def measure(questions):
        return task.measure(Split("dev", make_set(*questions), None), {"logits": LOGITS}, 2)

    found = measure(questions)
    assert found == pytest.approx(
        {
            "eval_accuracy": 4 / 5,
            "eval_accuracy_middle": 1.0,
            "eval_accuracy_high": 2 / 3,
            "eval_loss": (3 * RIGHT + WRONG + PAIR) / 5,
            "loss": (RIGHT + (RIGHT + WRONG) / 2 + PAIR) / 3,
        }
    )
    plain = [dataclasses.replace(question, level="") for question in questions]
    assert set(measure(plain)) == {"eval_accuracy", "eval_loss", "loss"}


def test_predictions_are_written_for_every_question(tmp_path):
    data = make_set(
        make_question(options=("x", "y", "z"), label=None), make_question("ok ?", ("x", "y"))
    )
    probabilities = np.array([[0.25, 0.25, 0.5], [0.75, 0.25, 0.0]], np.float32)
    task = race.MultipleChoice(Settings(data_dir="data", output_dir="out"), None, None)
    split, outputs = Split("test", data, None), {"probabilities": probabilities}
    task.write_predictions(RunFolder(str(tmp_path)), split, outputs, 1)
    text = (tmp_path / "race_predictions.jsonl").read_text(encoding="utf-8")
    keys = ("id", "question", "prediction", "answer", "probabilities")
    assert [tuple(json.loads(line)[key] for key in keys) for line in text.splitlines()] == [
        ("m1", "The _ is _ ?", 2, "C", [0.25, 0.25, 0.5]),
        ("m1", "ok ?", 0, "A", [0.75, 0.25]),
    ]
