"""Dynamic masking: a function of the seed and of the instance's number, and otherwise as static."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil

import numpy as np
import pytest

from albert_tf import data, pretraining
from albert_tf.data.masking import num_to_predict
from albert_tf.data.settings import MaskingSettings
from albert_tf.pretraining import dynamic_masking, input_pipeline
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.program import find_records
from albert_tf.pretraining.task import PretrainingTask
from tests.conftest import TINY_SHAPE, TOY_TEXT
from tests.script_runner import interrupted, killed_at, tensors

SEQ_LENGTH, BATCH_SIZE = 20, 6


def write_records(folder, vocabulary, **changes):
    """Writes records of the toy text without masks; returns their path."""
    (folder / "text.txt").write_text(TOY_TEXT.replace(".\n", ".\n\n") * 3)
    defaults = {"masked_lm_prob": 0.0, "dupe_factor": 2, "max_predictions_per_seq": 4}
    settings = data.Settings(
        input_file=str(folder / "text.txt"),
        output_file=str(folder / "train.tfrecord"),
        spm_model_file=vocabulary,
        max_seq_length=SEQ_LENGTH,
        num_workers=1,
        num_logged_instances=0,
        **defaults | changes,
    )
    data.run(settings)
    return settings.output_file


@pytest.fixture(scope="module", name="path")
def make_records(tmp_path_factory, toy_spm_model):
    return write_records(tmp_path_factory.mktemp("unmasked"), toy_spm_model)


@pytest.fixture(name="settings")
def make_settings(path, tmp_path):
    config = tmp_path / "albert_config.json"
    config.write_text(json.dumps(TINY_SHAPE | {"max_position_embeddings": SEQ_LENGTH}))
    return pretraining.Settings(
        input_file=path,
        output_dir=str(tmp_path / "out"),
        albert_config_file=str(config),
        max_seq_length=SEQ_LENGTH,
        max_predictions_per_seq=5,
        dynamic_masking=True,
        masked_lm_prob=0.3,
        precision="float32",
        optimizer="adamw",
        learning_rate=0.01,
        num_warmup_steps=0,
        train_batch_size=BATCH_SIZE,
        num_train_steps=9,
        save_checkpoints_steps=4,
    )


@pytest.fixture(name="task")
def make_task(tiny_config):
    config = dataclasses.replace(tiny_config, max_position_embeddings=SEQ_LENGTH)
    return PretrainingTask(config, SEQ_LENGTH, 5)


@pytest.fixture(name="records")
def find(settings, task):
    return find_records(settings, task, "input_file")


def take(records, batch_size, count, start=0, rows=None):
    """Returns the features of `count` batches, concatenated: name → [count · B, …]."""
    dataset = input_pipeline.training_dataset(
        *records[:2], batch_size, 3, start, rows, masking=records.masking
    )
    batches = [
        {name: value.numpy() for name, value in batch.items()}
        for batch in itertools.islice(dataset, count)
    ]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_batches_workers_and_resuming_change_no_mask(records):
    through = take(records, 4, 30)
    assert_equal(take(records, 12, 10), through)
    resumed = take(records, 5, 3, start=37)
    assert_equal(resumed, {name: values[37:52] for name, values in through.items()})
    second = take(records, 4, 30, rows=slice(1, 3))
    is_second = np.isin(np.arange(120) % 4, (1, 2))
    assert_equal(second, {name: values[is_second] for name, values in through.items()})


def unmask(batch):
    """Returns the tokens before masking, [B, S]."""
    original = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    original[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    return original


def test_each_epoch_masks_the_same_instances_differently(records):
    total = sum(file.num_records for file in records.files)
    epochs = [take(records, total, 1, start=total * epoch) for epoch in range(6)]
    instances = [unmask(epoch) for epoch in epochs]
    for original in instances:
        assert sorted(map(tuple, original)) == sorted(map(tuple, instances[0]))
    settings = MaskingSettings(masked_lm_prob=0.3, max_predictions_per_seq=5)
    masks = []
    for epoch, original in zip(epochs, instances, strict=True):
        wanted = num_to_predict(epoch["input_mask"].sum(axis=1), settings)
        counts = epoch["masked_lm_weights"].sum(axis=1)
        assert (counts <= wanted).all()
        assert counts.sum() > 0.9 * wanted.sum()
        masks.append(
            set(zip(map(tuple, original), map(tuple, epoch["masked_lm_positions"]), strict=True))
        )
    for one, other in itertools.combinations(masks, 2):
        assert len(one & other) < 0.2 * total


def test_masks_depend_on_the_seed_but_those_of_an_evaluation_do_not(records):
    other = records._replace(masking=dataclasses.replace(records.masking, seed=8))
    ours, theirs = take(records, 40, 1), take(other, 40, 1)
    np.testing.assert_array_equal(unmask(ours), unmask(theirs))
    assert (ours["masked_lm_positions"] != theirs["masked_lm_positions"]).any(axis=1).sum() > 30

    def evaluate(records, batch_size):
        dataset = input_pipeline.evaluation_dataset(
            *records[:2], batch_size, masking=records.masking
        )
        return np.concatenate([batch["masked_lm_positions"] for batch in dataset])

    np.testing.assert_array_equal(evaluate(records, 7), evaluate(other, 11))


def test_no_separator_and_no_padding_is_masked(records, toy_tokenizer):
    batch = take(records, 200, 1)
    original = unmask(batch)
    row, slot = np.nonzero(batch["masked_lm_weights"])
    position = batch["masked_lm_positions"][row, slot]
    assert batch["input_mask"][row, position].all()
    chosen = set(original[row, position].tolist())
    assert not chosen & {toy_tokenizer.cls_id, toy_tokenizer.sep_id}
    masked = batch["input_ids"][row, position] == toy_tokenizer.mask_id
    assert masked.mean() == pytest.approx(0.8, abs=0.05)


def test_whole_words_are_masked_as_in_the_data_program(records, path, toy_tokenizer):
    """A piece inside a word is masked if and only if the piece before it is."""
    batch = take(records, 300, 1)
    original, masked = unmask(batch), np.zeros(batch["input_ids"].shape, bool)
    row, slot = np.nonzero(batch["masked_lm_weights"])
    masked[row, batch["masked_lm_positions"][row, slot]] = True
    starts = np.array([piece.startswith("\u2581") for piece in toy_tokenizer.pieces])
    letters = np.array([piece.strip("\u2581").isalpha() for piece in toy_tokenizer.pieces])
    inside = letters[original[:, 1:]] & ~starts[original[:, 1:]] & letters[original[:, :-1]]
    assert inside.sum() > 500
    np.testing.assert_array_equal(masked[:, 1:][inside], masked[:, :-1][inside])


@pytest.mark.ci
def test_a_resumed_run_has_the_weights_of_one_that_was_not_interrupted(settings, tmp_path):
    settings = dataclasses.replace(settings, log_steps=1)
    pretraining.run(settings)
    parts = dataclasses.replace(settings, output_dir=str(tmp_path / "parts"))
    with interrupted():
        pretraining.run(parts, hooks=[killed_at(8)])  # the last checkpoint is that of step 4
    pretraining.run(parts)
    ours, theirs = (tensors(f"{tmp_path}/{name}/model.ckpt-9") for name in ("out", "parts"))
    assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"masked_lm_prob": 0.15}, "expected records that .* wrote with --masked_lm_prob=0"),
        ({"sentence_objective": "nsp"}, "created for sentence_objective=nsp"),
    ],
)
def test_other_records_are_refused(settings, tmp_path, toy_spm_model, changes, message):
    path = write_records(tmp_path, toy_spm_model, **changes)
    with pytest.raises(ValueError, match=message):
        pretraining.run(dataclasses.replace(settings, input_file=path, sentence_objective="sop"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"mask_id": 7}, r"mask_id is 7, but \[MASK\] has the id 4 in .*toy\.model"),
        ({"mask_id": "4"}, "mask_id is '4', expected a number below 82"),
        ({"mask_id": 82}, "mask_id is 82, expected a number below 82"),
        ({"instances": 36.5}, r"instances and bytes are \[36\.5, "),
    ],
)
def test_edited_metadata_is_refused(settings, path, tmp_path, toy_spm_model, edit, message):
    folder = tmp_path / "edited"
    shutil.copytree(os.path.dirname(path), folder)
    shutil.copy(toy_spm_model, folder)
    metadata_file = folder / "train.tfrecord.records.json"
    metadata = json.loads(metadata_file.read_text())
    assert (metadata["mask_id"], metadata["files"][0]["instances"]) == (4, 36)
    (metadata if "mask_id" in edit else metadata["files"][0]).update(edit)
    metadata_file.write_text(json.dumps(metadata))
    edited = dataclasses.replace(settings, input_file=str(folder / "train.tfrecord"))
    with pytest.raises(ValueError, match=message):
        pretraining.run(edited)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dynamic_masking": False}, "masked_lm_prob=0.3 has no effect, because the records"),
        ({"masked_lm_prob": 0.0}, "masks nothing"),
    ],
)
def test_settings_without_effect_are_refused(settings, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(settings, **changes)


def test_records_with_masks_are_evaluated_as_they_are(settings, tmp_path, toy_spm_model, task):
    path = write_records(tmp_path, toy_spm_model, masked_lm_prob=0.15, max_predictions_per_seq=5)
    assert dynamic_masking.for_records([path], MaskingSettings(), seed=3) is None
    mixed = [path, settings.input_file]
    with pytest.raises(ValueError, match=r"contains masked tokens, but .* does not"):
        dynamic_masking.for_records(mixed, MaskingSettings(), seed=3)
    held_out = dataclasses.replace(settings, eval_input_file=path)
    found = find_records(held_out, task, "eval_input_file")
    assert found.masking is None


def test_the_masks_of_a_record_are_kept_for_good():
    """Resuming after an update needs the same masks."""
    masking = DynamicMasking(MaskingSettings(max_predictions_per_seq=4), 4, 97, seed=5)
    ids = np.tile(np.arange(10, 30, dtype=np.int32), (3, 1))
    ids[:, 0], ids[:, -1] = 2, 3
    ones = np.ones_like(ids)
    masked = masking.mask_arrays(ids, ones, ones, first=1 << 33)
    assert masked["masked_lm_positions"].tolist() == [[6, 8, 9, 0], [10, 11, 15, 0], [9, 17, 18, 0]]
