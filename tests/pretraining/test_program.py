"""Pre-training from Python: Google's losses, resuming, the best checkpoint, and errors."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import pretraining
from albert_tf.checkpoints import store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.pretraining import record_files
from albert_tf.pretraining.program import name_optimizer_of_layout
from tests.script_runner import tensors
from tests.test_modeling import GOLDEN, read_golden


def write_batch(path, batch, copies=1):
    """Writes the rows of a batch of arrays as records."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in list(range(len(batch["input_ids"]))) * copies:
            feature = {}
            for name, values in batch.items():
                if values.dtype == np.float32:
                    numbers = {"float_list": tf.train.FloatList(value=values[row])}
                else:
                    numbers = {"int64_list": tf.train.Int64List(value=values[row])}
                feature[name] = tf.train.Feature(**numbers)
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


@pytest.fixture
def settings(tmp_path):
    """Returns settings for Google's reference batch, and its records."""
    write_batch(tmp_path / "train.tfrecord", read_golden("input/"))
    return pretraining.Settings(
        albert_config_file=f"{GOLDEN}/encoder_shared.json",
        input_file=str(tmp_path / "train.tfrecord"),
        output_dir=str(tmp_path / "out"),
        max_seq_length=20,
        max_predictions_per_seq=5,
        precision="float32",
    )


@pytest.fixture
def training(tmp_path, settings):
    """Returns settings of nine steps, evaluated on other records, keeping some checkpoints."""
    write_batch(tmp_path / "held_out.tfrecord", read_golden("input/"), copies=2)
    return dataclasses.replace(
        settings,
        eval_input_file=str(tmp_path / "held_out.tfrecord"),
        do_eval=True,
        optimizer="adamw",
        train_batch_size=6,
        eval_batch_size=5,
        learning_rate=0.01,
        num_warmup_steps=1,
        num_train_steps=9,
        save_checkpoints_steps=4,
        keep_checkpoint_max=3,
    )


def test_a_checkpoint_of_google_has_googles_losses(tmp_path, settings):
    store.save_checkpoint(str(tmp_path / "google"), read_golden("variable/"))
    result = pretraining.run(
        dataclasses.replace(
            settings, do_train=False, do_eval=True, init_checkpoint=f"{tmp_path}/google"
        )
    )
    expected = read_golden("output/")
    (evaluation,) = result.evaluations
    assert evaluation.metrics["loss"] == pytest.approx(float(expected["total_loss"]), rel=1e-5)
    assert evaluation.metrics["sentence_order_loss"] == pytest.approx(
        float(expected["sentence_order_loss"]), rel=1e-5
    )
    lines = (tmp_path / "out" / "eval_results.txt").read_text()
    assert str(result) + "\n" == lines
    assert [line.split(" = ")[0] for line in lines.splitlines()] == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "sentence_order_accuracy",
        "sentence_order_loss",
    ]
    assert not list((tmp_path / "out").glob("*.index"))


@pytest.mark.ci
@pytest.mark.parametrize("damage", ["content", "position"])
def test_evaluation_and_training_name_a_bad_record(tmp_path, settings, damage):
    store.save_checkpoint(str(tmp_path / "google"), read_golden("variable/"))
    batch = read_golden("input/")
    if damage == "position":
        batch["masked_lm_positions"][4, 1] = -2
    path = tmp_path / "train.tfrecord"
    write_batch(path, batch)
    if damage == "content":
        content = bytearray(path.read_bytes())
        content[4 * len(content) // 6 + 40] ^= 1
        path.write_bytes(content)
    evaluating = dataclasses.replace(
        settings, do_train=False, do_eval=True, init_checkpoint=f"{tmp_path}/google"
    )
    place = r"train\.tfrecord, record 5: " if damage == "content" else r"train\.tfrecord: a record "
    with pytest.raises(ValueError, match=place) as caught:
        pretraining.run(evaluating)
    training = dataclasses.replace(settings, train_batch_size=6, num_train_steps=1)
    with pytest.raises(ValueError, match=place) as in_training:
        pretraining.run(dataclasses.replace(training, output_dir=f"{tmp_path}/other"))
    assert str(in_training.value) == str(caught.value)


def assert_is_complete(output_dir, result, settings):
    """Checks that the loss fell, checkpoints were evaluated, and the best one was kept."""
    folder = RunFolder(str(output_dir))
    assert list(folder.checkpoints()) == [4, 8, 9]
    curve = {row["step"]: row["eval/loss"] for row in folder.metrics() if "eval/loss" in row}
    assert curve == {e.step: e.metrics["loss"] for e in result.evaluations}
    assert [e.step for e in result.evaluations] == [0, 4, 8, 9]
    losses = [evaluation.metrics["loss"] for evaluation in result.evaluations]
    assert losses[-1] < losses[0] - 0.5
    best = tensors(output_dir / "model.ckpt-best")["global_step"]
    assert best == (0, 4, 8, 9)[int(np.argmin(losses))]
    found_out = {"sentence_objective": "sop", "precision": "float32"}
    assert folder.record.settings == json.loads(json.dumps(settings.to_dict())) | found_out
    assert folder.record.task == {"selection_metric": "masked_lm_accuracy"}


@pytest.mark.ci
def test_a_run_evaluates_its_checkpoints_once_wherever_the_records_are(tmp_path, training, caplog):
    before = pretraining.run(training)
    assert_is_complete(tmp_path / "out", before, training)
    curves = (tmp_path / "out" / "metrics.jsonl").read_bytes()
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("train.tfrecord", "held_out.tfrecord"):
        shutil.copyfile(tmp_path / name, moved / name)  # with another time
    inputs = {"input_file": f"{moved}/train.tfrecord", "eval_input_file": f"{moved}/held*"}
    caplog.clear()
    assert pretraining.run(dataclasses.replace(training, **inputs)) == before
    assert (tmp_path / "out" / "metrics.jsonl").read_bytes() == curves
    assert "evaluated" not in caplog.text


def write_vocabulary(path, checksum):
    """Writes metadata that names the vocabulary of the six records of a file."""
    entry = {"name": path.name, "instances": 6, "bytes": path.stat().st_size}
    vocabulary = {"size": 40, "checksum": checksum * 64, "file": f"{checksum}.model"}
    metadata = {"files": [entry], "settings": {}, "vocabulary": vocabulary, "mask_id": 4}
    path.with_suffix(".records.json").write_text(json.dumps(metadata))


def test_records_of_another_vocabulary_are_rejected(tmp_path, settings):
    (tmp_path / "out").mkdir()
    first, second = tmp_path / "train.tfrecord", tmp_path / "second.tfrecord"
    second.write_bytes(first.read_bytes())
    write_vocabulary(first, "a")
    write_vocabulary(second, "b")
    store.save_checkpoint(str(tmp_path / "out" / "model.ckpt-9"), read_golden("variable/"))
    known = record_files.find_vocabulary(record_files.find_record_files([str(first)], {}))
    RunFolder(str(tmp_path / "out")).write_record(known)
    settings = dataclasses.replace(settings, train_batch_size=6, do_eval=True)
    with pytest.raises(ValueError, match="created with different vocabularies: "):
        pretraining.run(dataclasses.replace(settings, eval_input_file=str(second)))
    other = dataclasses.replace(settings, input_file=str(second))
    with pytest.raises(ValueError, match=r"(?s)with other settings.*a\.model.*b\.model"):
        pretraining.run(other)
    with pytest.raises(ValueError, match=r"(?s)another vocabulary:.*a\.mod.*b\.model"):
        pretraining.run(dataclasses.replace(other, do_train=False))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False}, "nothing to do"),
        ({"use_tpu": True}, "--use_tpu"),
        ({"max_seq_length": 41}, "--max_seq_length=41 is larger .*max_position_.*=40"),
        ({"train_batch_size": 7}, "--train_batch_size=7 is larger than the data: 6 records"),
        ({"input_file": "none*"}, r"'none\*' matches no file"),
        ({"train_batch_size": 6, "init_checkpoint": "none"}, "none: no such checkpoint"),
    ],
)
def test_invalid_combinations_are_rejected_before_training(tmp_path, settings, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        pretraining.run(dataclasses.replace(settings, **changes))
    assert not list(tmp_path.glob("out/*.index"))


def test_a_checkpoint_that_lacks_a_variable_is_rejected(tmp_path, settings):
    weights = read_golden("variable/")
    del weights["bert/pooler/dense/kernel"]
    store.save_checkpoint(str(tmp_path / "part"), weights)
    settings = dataclasses.replace(settings, init_checkpoint=f"{tmp_path}/part", train_batch_size=6)
    with pytest.raises(ValueError, match=r"bert/pooler/dense/kernel is missing"):
        pretraining.run(settings)
    with pytest.raises(ValueError, match=r"bert/pooler/dense/kernel is missing"):
        pretraining.run(dataclasses.replace(settings, do_train=False, do_eval=True))


@pytest.mark.parametrize(
    ("optimizer", "layout", "is_named"),
    [
        ("lamb", "albert_zh", True),
        ("lamb", "google", False),
        ("lamb_albert_zh", "albert_zh", False),
        ("adamw", "albert_zh", False),
    ],
)
def test_googles_lamb_with_albert_zhs_layout_names_albert_zhs(
    settings, tiny_config, caplog, optimizer, layout, is_named
):
    caplog.set_level("INFO", logger="absl")
    config = dataclasses.replace(tiny_config, layout=layout, num_hidden_groups=1)
    name_optimizer_of_layout(dataclasses.replace(settings, optimizer=optimizer), config)
    assert ("--optimizer=lamb_albert_zh" in caplog.text) == is_named


@pytest.mark.ci
def test_the_best_checkpoint_is_exported_for_texts_and_tokens(tmp_path, training, toy_spm_model):
    pretraining.run(training)
    shutil.copy(toy_spm_model, tmp_path / "out" / "toy.model")
    values = {"do_train": False, "do_eval": False, "export_dir": f"{tmp_path}/export"}
    pretraining.run(dataclasses.replace(training, **values))
    (folder,) = (tmp_path / "export").iterdir()
    assert {path.name for path in (folder / "assets.extra").iterdir()} == {
        *("albert_config.json", "toy.model")
    }
    served = tf.saved_model.load(str(folder)).signatures
    text = "the river is wide."
    expected = albert_tf.load_predictor(str(tmp_path / "out"), pooling="pooled")(text)
    found = served["texts"](text_a=tf.constant([text]), text_b=tf.constant([""]))["pooled"]
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    assert albert_tf.load_predictor(str(folder), "fill_mask")("the [MASK] is wide.")["masks"]


@pytest.mark.ci
def test_an_export_without_a_vocabulary_takes_tokens_alone(tmp_path, settings, caplog):
    (tmp_path / "out").mkdir()
    shutil.copy(settings.albert_config_file, tmp_path / "out" / "albert_config.json")
    store.save_checkpoint(str(tmp_path / "out" / "model.ckpt-best"), read_golden("variable/"))
    values = {"do_train": False, "export_dir": f"{tmp_path}/export"}
    pretraining.run(dataclasses.replace(settings, **values))
    assert "has no vocabulary, so the export takes no texts" in caplog.text
    (folder,) = (tmp_path / "export").iterdir()
    assert "texts" not in tf.saved_model.load(str(folder)).signatures
