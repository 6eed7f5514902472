"""Pre-training from Python: Google's losses, the learning rate, checkpoints, and refusals."""

from __future__ import annotations

import dataclasses
import json
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import pretraining
from albert_tf.checkpoints import store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.data.record_metadata import find_records
from albert_tf.model.config import AlbertConfig
from albert_tf.pretraining import input_pipeline
from albert_tf.pretraining.program import (
    check_learning_rate,
    describe_data,
    make_task,
    streams_of,
)
from albert_tf.pretraining.record_files import check_files
from albert_tf.pretraining.task import PretrainingTask
from tests.conftest import BATCH_SIZE, MAX_PREDICTIONS, SEQ_LENGTH
from tests.model.test_modeling import GOLDEN, read_golden
from tests.pretraining.conftest import write_batch, write_metadata
from tests.script_runner import tensors


@pytest.fixture
def settings(tmp_path):
    """Settings for Google's reference batch, and its records."""
    return pretraining.Settings(
        albert_config_file=f"{GOLDEN}/encoder_shared.json",
        input_file=write_batch(tmp_path / "train.tfrecord", read_golden("input/")),
        output_dir=str(tmp_path / "out"),
        max_seq_length=20,
        max_predictions_per_seq=5,
        train_batch_size=6,
        precision="float32",
    )


@pytest.fixture
def evaluating(tmp_path, settings):
    """Settings for the evaluation of Google's weights."""
    store.save_checkpoint(str(tmp_path / "google"), read_golden("variable/"))
    return dataclasses.replace(
        settings, do_train=False, do_eval=True, init_checkpoint=f"{tmp_path}/google"
    )


def test_a_checkpoint_of_google_has_googles_losses(tmp_path, evaluating):
    result = pretraining.run(evaluating)
    expected = read_golden("output/")
    (evaluation,) = result.evaluations
    for name, key in {"loss": "total_loss", "sentence_order_loss": "sentence_order_loss"}.items():
        assert evaluation.metrics[name] == pytest.approx(float(expected[key]), rel=1e-5)
    lines = (tmp_path / "out" / "eval_results.txt").read_text()
    assert str(result) + "\n" == lines
    assert [line.split(" = ")[0] for line in lines.splitlines()] == [
        *("global_step", "loss", "masked_lm_accuracy", "masked_lm_loss"),
        *("sentence_order_accuracy", "sentence_order_loss"),
    ]
    assert not list((tmp_path / "out").glob("*.index"))


@pytest.fixture
def training(tmp_path, settings):
    """Settings of nine steps, evaluated on other records, keeping some checkpoints."""
    held_out = write_batch(tmp_path / "held_out.tfrecord", read_golden("input/"), copies=2)
    return dataclasses.replace(
        settings,
        eval_input_file=held_out,
        do_eval=True,
        optimizer="adamw",
        eval_batch_size=5,
        learning_rate=0.01,
        num_warmup_steps=1,
        num_train_steps=9,
        save_checkpoints_steps=4,
        keep_checkpoint_max=3,
    )


@pytest.mark.ci
def test_a_run_learns_evaluates_its_checkpoints_once_and_keeps_the_best(tmp_path, training):
    result = pretraining.run(training)
    folder = RunFolder(training.output_dir)
    assert list(folder.checkpoints()) == [4, 8, 9]
    losses = {evaluation.step: evaluation.metrics["loss"] for evaluation in result.evaluations}
    curve = {row["step"]: row["eval/loss"] for row in folder.metrics() if "eval/loss" in row}
    assert losses == curve
    assert list(losses) == [0, 4, 8, 9]
    assert losses[9] < losses[0] - 0.5
    text = (tmp_path / "out" / "eval_results.txt").read_text()
    assert re.findall(r"(?m)^global_step = (\d+)\nloss = ", text) == ["0", "4", "8", "9"]
    best = tensors(tmp_path / "out" / "model.ckpt-best")["global_step"]
    assert best == min(losses, key=losses.get)
    found_out = {"sentence_objective": "sop", "precision": "float32", "record_streams": 1}
    assert folder.record.settings == json.loads(json.dumps(training.to_dict())) | found_out
    assert "training data" in folder.record.files
    assert folder.record.task == {"selection_metric": "masked_lm_accuracy"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gradient_accumulation_steps": 4}, r"batch_size=6 is not a multiple of 1 device\(s\)"),
        ({"record_streams": 2}, "--record_streams=2: there are only 1 record files"),
        ({"masked_lm_prob": 0.3}, "masked_lm_prob=0.3 has no effect, because the records"),
    ],
)
def test_what_only_the_records_and_devices_tell_is_refused_before_training(
    tmp_path, settings, changes, said
):
    with pytest.raises((ValueError, OSError), match=said):
        pretraining.run(dataclasses.replace(settings, **changes))
    assert not list(tmp_path.glob("out/*.index"))


@pytest.mark.ci
def test_a_batch_larger_than_the_data_repeats_records_as_googles_program_does(settings, caplog):
    settings = dataclasses.replace(settings, train_batch_size=15, num_train_steps=1)
    pretraining.run(settings)
    assert list(RunFolder(settings.output_dir).checkpoints()) == [0, 1]
    assert sum("is larger than the data: " in text for text in caplog.messages) == 1


def recorded_with(streams, **others):
    return {"seed": 12345, "record_streams": streams, **others}


STREAMED = recorded_with(16, stream_order=2)


@pytest.mark.parametrize(
    ("recorded", "steps", "changes", "streams"),
    [
        ({}, 9, {}, 32),
        (STREAMED, 0, {}, 32),
        (STREAMED, 9, {}, 16),
        (STREAMED, 9, {"record_streams": 8}, 8),  # which is compared
        (recorded_with(1), 9, {}, 1),
        (recorded_with(1), 9, {"record_streams": 16}, 16),
        (recorded_with(7, stream_order=2), 9, {}, 32),  # with a batch that 7 does not divide
        (recorded_with(16), 0, {}, 32),  # the first order of streams, before the first step
        (recorded_with(16), 9, {"allow_changed_settings": True}, 16),
    ],
)
def test_a_resumed_run_keeps_its_streams(settings, recorded, steps, changes, streams):
    settings = dataclasses.replace(settings, train_batch_size=32, **changes)
    folder = types.SimpleNamespace(
        path="run", is_trained=steps > 0, record=RunRecord(settings=recorded)
    )
    assert streams_of(settings, folder, [9] * 99) == streams


@pytest.mark.ci
def test_a_run_reads_each_record_once_an_epoch_also_if_it_is_killed(
    training, tmp_path, monkeypatch, caplog
):
    files, total = 64, 5 * 64
    rows = read_golden("input/")
    for file in range(files):
        batch = {name: values[[0] * 5] for name, values in rows.items()}
        batch["input_ids"] = batch["input_ids"].copy()
        batch["input_ids"][:, 1] = 5 + file  # a record is known by its second and third token
        batch["input_ids"][:, 2] = np.arange(5, 10)
        write_batch(tmp_path / f"numbered-{file:02d}", batch)
    trained = []
    step_of = input_pipeline.batches

    def counted(dataset, files):
        for batch in step_of(dataset, files):
            trained.append(batch["input_ids"][:, 1:3].numpy())
            yield batch

    monkeypatch.setattr(input_pipeline, "batches", counted)
    steps = 3 * total // 48
    settings = dataclasses.replace(
        training,
        input_file=f"{tmp_path}/numbered-*",
        train_batch_size=48,
        num_train_steps=steps,
        save_checkpoints_steps=4,
        keep_checkpoint_max=0,
        do_eval=False,
    )
    pretraining.run(settings)
    through = np.stack(trained[:steps])
    epochs = through.reshape(3, total, 2)
    assert all(len(set(map(tuple, epoch.tolist()))) == total for epoch in epochs)
    folder = RunFolder(settings.output_dir)
    assert folder.record.settings["record_streams"] == 16
    for path in tmp_path.glob("out/model.ckpt-*"):  # as if the run had been killed after step 16
        if int(re.search(r"ckpt-(\d+)", path.name)[1]) > 16:
            path.unlink()
    trained.clear()
    pretraining.run(settings)
    np.testing.assert_array_equal(trained[: steps - 16], through[16:])
    first_order = {n: v for n, v in folder.record.settings.items() if n != "stream_order"}
    folder.write_record(dataclasses.replace(folder.record, settings=first_order))
    with pytest.raises(ValueError, match=r"out contains a run that .* in 16 streams of whole"):
        pretraining.run(settings)
    pretraining.run(dataclasses.replace(settings, allow_changed_settings=True))
    assert "Accepted by --allow_changed_settings" in caplog.text
    assert RunFolder(settings.output_dir).record.settings["stream_order"] == 2


def test_workers_that_open_one_file_compare_the_metadata_of_all(settings, tmp_path):
    def describe(is_chief):
        found = pretraining.find_record_files(f"{tmp_path}/*.tfrecord", "--input_file")
        task = make_task(settings, config, found, found, only_first=not is_chief)
        return describe_data(task, is_chief).files

    config = AlbertConfig.from_json_file(settings.albert_config_file)
    paths = [tmp_path / f"{name}.tfrecord" for name in ("train", "u", "v")]
    for path in paths:
        write_batch(path, read_golden("input/"))
        write_metadata(path, 6, size=50)
    chief, other = describe(True), describe(False)
    assert chief.keys() - other.keys() == {"training data", "record contents"}
    assert other.items() <= chief.items()
    write_metadata(paths[-1], 5, size=50)
    assert describe(False)["record metadata"] != other["record metadata"]
    paths[-1].write_bytes(paths[-1].read_bytes()[::-1])  # which the first worker finds
    assert describe(False)
    with pytest.raises(ValueError, match="v\\.tfrecord, record 1: the checksum"):
        describe(True)


def test_records_have_to_fit_the_model(tmp_path, tiny_config, tiny_batch, caplog):
    path = tmp_path / "train.tfrecord"
    write_batch(path, tiny_batch)
    write_metadata(path, 5)
    found = pretraining.find_record_files(f"{tmp_path}/*", "--input_file")

    def check(seq_length=11, **changes):
        task = PretrainingTask(dataclasses.replace(tiny_config, **changes), seq_length, 7)
        return check_files(found, task.features)

    (file,) = check()
    assert file.num_records == 5
    with pytest.raises(ValueError, match=r"input_ids has 11 values, but --max_seq_length=12\."):
        check(seq_length=12)
    with pytest.raises(ValueError, match=r"contains \d+, expected 0 to 49 .* vocab_size=50"):
        check(vocab_size=50)
    assert not caplog.records
    write_batch(path, tiny_batch | {"masked_lm_weights": np.zeros((5, 7), np.float32)})
    check()
    assert f"{path}: the first record has no masked tokens" in caplog.text


def test_many_files_without_metadata_and_masks_are_two_lines(
    tmp_path, tiny_config, tiny_batch, caplog
):
    unmasked = tiny_batch | {"masked_lm_weights": np.zeros((5, 7), np.float32)}
    paths = [str(tmp_path / f"part-{number}") for number in range(20)]
    for path in paths:
        write_batch(path, unmasked)
    features = PretrainingTask(tiny_config, 11, 7).features
    with caplog.at_level("INFO"):
        check_files(dict.fromkeys(paths), features)
    assert [(line.levelname, line.message.partition(" (")[0]) for line in caplog.records] == [
        ("INFO", f"{paths[0]} and 19 more: no metadata next to it, so all records are read once"),
        ("WARNING", f"{paths[0]} and 19 more: the first record has no masked tokens"),
    ]
    caplog.clear()
    del features["masked_lm_weights"]  # as with masks that are drawn in training
    check_files(dict.fromkeys(paths[:1]), features)
    assert not [line for line in caplog.records if line.levelname == "WARNING"]


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_losses_follow_the_formula(tiny_config, tiny_batch, objective):
    name = {"sop": "sentence_order", "nsp": "next_sentence"}.get(objective)
    task = PretrainingTask(tiny_config, SEQ_LENGTH, MAX_PREDICTIONS, objective)
    assert ("next_sentence_labels" in task.features) == (name is not None)
    rng = np.random.default_rng(3)
    words = rng.normal(size=(BATCH_SIZE, MAX_PREDICTIONS, 97)).astype(np.float32)
    order = rng.normal(size=(BATCH_SIZE, 2)).astype(np.float32)
    labels, weights = tiny_batch["masked_lm_ids"], tiny_batch["masked_lm_weights"]
    labels += 9 * (weights == 0)  # labels without weight do not count
    targets = tiny_batch["next_sentence_labels"]
    outputs = {"masked_lm_logits": tf.constant(words)}
    outputs |= {f"{name}_logits": tf.constant(order)} if name else {}
    batch = {k: tf.constant(v) for k, v in tiny_batch.items() if k in task.features}
    loss, sums = task.loss(outputs, batch)

    def cross_entropy(logits, labels):
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return -np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0]

    word_loss = (cross_entropy(words, labels) * weights).sum()
    order_losses = cross_entropy(order, targets[:, 0])
    expected = word_loss / (weights.sum() + 1e-5) + order_losses.mean() * bool(name)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    hits = ((words.argmax(-1) == labels) * weights).sum()
    expected = {
        "masked_lm_loss": [word_loss, weights.sum()],
        "masked_lm_accuracy": [hits, weights.sum()],
    }
    if name:
        right = (order.argmax(-1) == targets[:, 0]).sum()
        expected[f"{name}_loss"] = [order_losses.sum(), BATCH_SIZE]
        expected[f"{name}_accuracy"] = [right, BATCH_SIZE]
    assert {name: [float(x) for x in pair] for name, pair in sums.items()} == {
        name: pytest.approx(pair, rel=1e-5) for name, pair in expected.items()
    }


@pytest.mark.parametrize(
    ("rate", "batch_size", "advised"),
    [
        (0.00176, 32, "0.000156"),
        (0.00176, 1024, "0.00088"),
        (0.00176, 1025, None),
        (0.001, 32, None),
    ],
)
def test_a_warning_says_which_learning_rate_fits_a_small_batch(caplog, rate, batch_size, advised):
    check_learning_rate(rate, batch_size)
    assert [text.endswith(f"--learning_rate={advised}.") for text in caplog.messages] == [
        True
    ] * bool(advised)


@pytest.mark.parametrize("is_one_hot", [False, True])
def test_one_hot_segments_enter_the_norm_of_the_gradient_added_up(settings, is_one_hot):
    settings = dataclasses.replace(settings, one_hot_segments=is_one_hot)
    records = find_records(settings.input_file, "--input_file")
    config = AlbertConfig.from_json_file(settings.albert_config_file)
    task = make_task(settings, config, records, records)
    batch = next(iter(task.batches(settings, 0, slice(0, 6))))
    model = task.build_model()
    with tf.GradientTape() as tape:
        loss, _ = task.loss(model(batch), batch)
    (gradient,) = tape.gradient(loss, [model.encoder.embeddings.segment_table])
    rows = np.zeros(gradient.shape, np.float64)  # added up by segment
    if not is_one_hot:
        np.add.at(rows, gradient.indices.numpy(), gradient.values.numpy())
        squares = np.sum(np.square(gradient.values, dtype=np.float64))
        assert len(gradient.indices) == 6 * 20
    else:
        rows += gradient.numpy()
        squares = np.sum(rows**2)
    np.testing.assert_allclose(tf.linalg.global_norm([gradient]) ** 2, squares, rtol=1e-4)
    assert abs(squares / np.sum(rows**2) - 1) > 0.05 or is_one_hot
