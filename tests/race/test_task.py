import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.data.tfrecord import encode_examples
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import Split
from albert_tf.race import task as race
from albert_tf.race.reading import Question, read_race
from albert_tf.race.settings import Settings
from albert_tf.serving import saved_model
from albert_tf.tokenization import FullTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h what is the ? x y z w q 1 ok".split()
OPTIONS = ("x y", "z", "w", "q")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return FullTokenizer(vocab_file=str(path))


def ids(text):
    return [WORDS.index(word) for word in text.split()]


def make_set(*questions, split="dev"):
    return Examples("memory", split, list(questions), "race")


def make_question(question="The _ is _ ?", options=OPTIONS, label=1, level="", passage=None):
    return Question("m1", passage or "A  B\nC d e f g h", question, options, label, level)


def test_the_option_fills_every_blank_or_follows_the_question():
    assert race.fill_in("the _ is _ ?", "x y") == "the x y is x y ?"
    assert race.fill_in("what ?", "1") == "what ? 1"
    assert race.fill_in("", "1") == " 1"


def test_features_equal_googles(tokenizer):
    features = race.make_features(make_set(make_question()), tokenizer, 12, 4)
    batch = features.batch(np.array([0]), 12)
    assert batch["input_ids"].shape == (1, 4, 12)
    assert batch["input_ids"][0, 0].tolist() == ids("[CLS] a b c d e [SEP] is x y ? [SEP]")
    assert batch["segment_ids"][0, 0].tolist() == [0] * 7 + [1] * 5
    assert batch["input_ids"][0, 1].tolist() == ids("[CLS] a b c d e [SEP] z is z ? [SEP]")
    assert batch["label_ids"].tolist() == [1]


def test_a_short_question_leaves_more_room_for_the_passage(tokenizer):
    data = make_set(make_question("what ?", ("1", "ok 1 1 1 1 1")))
    batch = race.make_features(data, tokenizer, 12, 5).batch(np.array([0]), 12)
    assert batch["input_ids"][0, 0].tolist() == ids("[CLS] a b c d e f [SEP] what ? 1 [SEP]")
    assert batch["input_ids"][0, 1].tolist() == ids("[CLS] a b c d [SEP] 1 1 1 1 1 [SEP]")


def test_questions_with_fewer_options_are_padded(tokenizer):
    data = make_set(make_question(options=("z", "w", "q")), make_question(options=("x", "y")))
    features = race.make_features(data, tokenizer, 12, 4)
    assert features.num_choices == 3
    batch = features.batch(np.array([0, 1]), 12)
    assert batch["input_mask"].any(axis=2).tolist() == [[True] * 3, [True, True, False]]


def test_lengths_that_leave_no_room_are_rejected_or_reduced(tokenizer, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    data = make_set(make_question())
    with pytest.raises(ValueError, match="--max_seq_length=3 and --max_qa_length=4"):
        race.make_features(data, tokenizer, 3, 4)
    with pytest.raises(ValueError, match="--max_seq_length=12 and --max_qa_length=0"):
        race.make_features(data, tokenizer, 12, 0)
    features = race.make_features(data, tokenizer, 7, 128)
    assert logged == ["max_qa_length=128 is reduced to 4, to fit beside [CLS], [SEP] and [SEP]"]
    assert features.batch(np.array([0]), 7)["input_ids"][0, 0].tolist() == ids(
        "[CLS] [SEP] is x y ? [SEP]"
    )


def test_features_match_googles_program(shared):
    golden = np.load(shared / "golden" / "tasks" / "race" / "dev.npz")
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    data = read_race(str(shared / "data" / "race"), "dev")
    count, _, length = golden["input_ids"].shape
    data = dataclasses.replace(data, examples=data.examples[:count])
    batch = race.make_features(data, tokenizer, length, 64).batch(np.arange(count), length)
    for key in ("input_ids", "input_mask", "segment_ids"):
        np.testing.assert_array_equal(batch[key], golden[key], err_msg=key)
    np.testing.assert_array_equal(batch["label_ids"], golden["label_id"])


def make_task(config, tokenizer=None, **settings):
    return race.MultipleChoice(
        Settings(**{"data_dir": "data", "output_dir": "out"} | settings), config, tokenizer
    )


def test_a_checkpoint_is_evaluated_again_if_its_features_changed(tokenizer, tiny_config, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    cased = FullTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False)

    def name(words=tokenizer, data=None, **settings):
        task = make_task(
            tiny_config, words, **{"max_seq_length": 12, "max_qa_length": 4} | settings
        )
        data = data or make_set(make_question())
        split = Split("dev", data, task.make_features(data, "dev"))
        task.use({"dev": split}, tf.distribute.get_strategy())
        return task.measured_on()

    names = [
        name(),
        name(cased),
        name(max_seq_length=13),
        name(max_qa_length=3),
        name(data=make_set(make_question(label=2))),
    ]
    assert len(set(names)) == len(names)
    assert name() == names[0]


def test_the_loss_is_the_mean_over_questions(tiny_config, tiny_batch):
    task = make_task(tiny_config, dropout_prob=0.0)
    batch = {
        name: tf.constant(np.stack([tiny_batch[name], tiny_batch[name][::-1]], axis=1))
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    labels = np.array([0, 1, 1, 0, 1], np.int32)
    logits = task.build_model()(batch)
    loss, sums = task.loss(logits, batch | {"label_ids": tf.constant(labels)})
    chosen = task.predictions(logits)["probabilities"].numpy()[np.arange(5), labels]
    np.testing.assert_allclose(loss, -np.log(chosen).mean(), rtol=1e-5)
    assert sums["accuracy"][1] == 5
    assert sums["accuracy"][0] == (logits.numpy().argmax(axis=1) == labels).sum()


LOGITS = np.array([[9, 0, 0], [0, 9, 0], [0, 9, 0], [0, 0, 9], [9, 0, -10000.0]], np.float32)


def test_results_are_reported_overall_and_for_each_level():
    questions = [
        make_question(label=label, level=level)
        for label, level in zip((0, 1, 2, 2, 0), ("middle",) * 2 + ("high",) * 3, strict=True)
    ]
    found = race.evaluate(make_set(*questions), LOGITS, 2)
    wrong, right, pair = np.log(2 + np.exp(9)), np.log(1 + 2 * np.exp(-9)), np.log(1 + np.exp(-9))
    assert found == pytest.approx(
        {
            "eval_accuracy": 4 / 5,
            "eval_accuracy_middle": 1.0,
            "eval_accuracy_high": 2 / 3,
            "eval_loss": (3 * right + wrong + pair) / 5,
            "loss": (right + (right + wrong) / 2 + pair) / 3,
        }
    )
    plain = [dataclasses.replace(question, level="") for question in questions]
    assert set(race.evaluate(make_set(*plain), LOGITS, 2)) == {"eval_accuracy", "eval_loss", "loss"}


def test_predictions_are_written_for_every_question(tmp_path):
    data = make_set(
        make_question(options=("x", "y", "z")), make_question("ok ?", ("x", "y")), split="test"
    )
    probabilities = np.array([[0.25, 0.25, 0.5], [0.75, 0.25, 0.0]], np.float32)
    path = race.write_predictions(RunFolder(str(tmp_path)), data, probabilities)
    assert path == str(tmp_path / "race_predictions.jsonl")
    text = (tmp_path / "race_predictions.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines == [
        {
            "id": "m1",
            "question": "The _ is _ ?",
            "prediction": 2,
            "answer": "C",
            "probabilities": [0.25, 0.25, 0.5],
        },
        {
            "id": "m1",
            "question": "ok ?",
            "prediction": 0,
            "answer": "A",
            "probabilities": [0.75, 0.25],
        },
    ]
    with pytest.raises(ValueError, match="shorter than"):
        race.write_predictions(RunFolder(str(tmp_path)), data, probabilities[:1])


@pytest.mark.ci
def test_an_exported_model_accepts_any_number_of_options(tiny_config, tiny_batch, tmp_path):
    task = make_task(tiny_config)
    model = task.build_model()
    exported = task.make_export(model, 11, RunFolder(""))
    loaded = tf.saved_model.load(saved_model.export(str(tmp_path), model.variables, exported, {}))
    names = ("input_ids", "input_mask", "segment_ids")
    for options in (2, 3):
        batch = {name: np.stack([tiny_batch[name]] * options, axis=1) for name in names}
        batch["input_ids"][:, 1] = batch["input_ids"][:, 1, ::-1]
        batch["input_mask"][:] = 1
        batch["input_mask"][0, -1] = batch["input_ids"][0, -1] = 0  # a missing option
        tensors = {name: tf.constant(value) for name, value in batch.items()}
        found = loaded.signatures["serving_default"](**tensors)
        expected = task.served_outputs(model(tensors))
        np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-6)
        np.testing.assert_array_equal(found["predictions"], expected["predictions"])
        assert found["probabilities"][0, -1] == 0
        flat = {name: value.reshape(5, -1) for name, value in batch.items()}
        again = loaded.signatures["examples"](tf.constant(encode_examples(flat)))
        np.testing.assert_allclose(again["probabilities"], found["probabilities"], atol=1e-6)
