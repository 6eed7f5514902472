"""Dynamic masking: a function of the seed and of the instance's number, and otherwise as static."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from albert_tf import data, pretraining
from albert_tf.data.masking import num_to_predict
from albert_tf.data.record_metadata import find_records
from albert_tf.data.settings import MaskingSettings
from albert_tf.pretraining import dynamic_masking, input_pipeline
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.record_streams import StreamPlan
from albert_tf.pretraining.records import records_to_mask
from albert_tf.pretraining.task import PretrainingTask
from tests.conftest import TINY_SHAPE, TOY_TEXT

SEQ_LENGTH = 20


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
def make_path(tmp_path_factory, toy_spm_model):
    return write_records(tmp_path_factory.mktemp("unmasked"), toy_spm_model)


@pytest.fixture(name="settings")
def make_settings(path, tmp_path):
    config = tmp_path / "albert_config.json"
    config.write_text(json.dumps(TINY_SHAPE | {"max_position_embeddings": SEQ_LENGTH}))
    return pretraining.Settings(
        input_file=path,
        output_dir=str(tmp_path / "out"),
        albert_config_file=str(config),
        sentence_objective="sop",
        max_seq_length=SEQ_LENGTH,
        max_predictions_per_seq=5,
        dynamic_masking=True,
        masked_lm_prob=0.3,
        train_batch_size=6,
    )


@pytest.fixture(name="task")
def make_task(tiny_config):
    config = dataclasses.replace(tiny_config, max_position_embeddings=SEQ_LENGTH)
    return PretrainingTask(config, SEQ_LENGTH, 5)


@pytest.fixture(name="records")
def find(settings, task):
    found = find_records(settings.input_file, "")
    return records_to_mask(found, task.features, settings, settings.seed)


def take(records, batch_size, count, start=0, rows=None, plan=None):
    """Returns the features of `count` batches, concatenated: name → [count · B, …]."""
    dataset = input_pipeline.training_dataset(
        *records[:2], batch_size, 3, start, rows, masking=records.masking, plan=plan
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
    """Returns the tokens before masking, [B, S], and whether each is to be predicted."""
    original, is_masked = batch["input_ids"].copy(), np.zeros(batch["input_ids"].shape, bool)
    row, slot = np.nonzero(batch["masked_lm_weights"])
    position = batch["masked_lm_positions"][row, slot]
    original[row, position] = batch["masked_lm_ids"][row, slot]
    is_masked[row, position] = True
    return original, is_masked


@pytest.mark.parametrize("streams", [1, 3])
def test_each_epoch_masks_the_same_instances_differently(records, streams):
    total = records.num_records
    settings = MaskingSettings(masked_lm_prob=0.3, max_predictions_per_seq=5)
    plan = StreamPlan(records.files, streams, 6, seed=3) if streams > 1 else None
    order = take(records, 6, total * 4 // 6 + 1, plan=plan)
    masks = []
    for number in range(4):
        epoch = {name: values[total * number :][:total] for name, values in order.items()}
        original, is_masked = unmask(epoch)
        wanted = num_to_predict(epoch["input_mask"].sum(axis=1), settings)
        assert (is_masked.sum(axis=1) <= wanted).all()
        assert is_masked.sum() > 0.9 * wanted.sum()
        masks.append(dict(zip(map(bytes, original), map(bytes, is_masked), strict=True)))
    for one, other in itertools.combinations(masks, 2):
        assert one.keys() == other.keys()
        assert sum(one[row] == other[row] for row in one) < 0.2 * total


def test_masks_depend_on_the_seed_but_those_of_an_evaluation_do_not(records):
    other = records._replace(masking=dataclasses.replace(records.masking, seed=8))
    ours, theirs = unmask(take(records, 40, 1)), unmask(take(other, 40, 1))
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert (ours[1] != theirs[1]).any(axis=1).sum() > 30

    def evaluate(records, batch_size):
        dataset = input_pipeline.evaluation_dataset(
            *records[:2], batch_size, masking=records.masking
        )
        return np.concatenate([batch["masked_lm_positions"] for batch in dataset])

    np.testing.assert_array_equal(evaluate(records, 7), evaluate(other, 11))


def test_the_masks_of_a_record_are_kept_for_good_and_are_whole_words():
    """Resuming after an update needs the same masks."""
    masking = DynamicMasking(MaskingSettings(max_predictions_per_seq=4), 4, 97, seed=5)
    ids = np.tile(np.arange(10, 30, dtype=np.int32), (3, 1))
    ids[:, 0], ids[:, -2:] = 2, (3, 0)
    is_used = ids > 0
    starts = np.tile(np.arange(20) % 2, (3, 1))
    masked = masking.mask_arrays(ids, is_used.astype(np.int32), starts, first=1 << 33)
    expected = [[7, 8, 17, 0], [9, 10, 17, 0], [9, 10, 17, 0]]
    assert masked["masked_lm_positions"].tolist() == expected
    for row, positions in enumerate(expected):
        ids[row, positions[:3]] = 4  # by chance, no word is kept or replaced by a random one
    np.testing.assert_array_equal(masked["input_ids"], ids)


def test_records_with_masks_are_not_masked_again_but_evaluated_as_they_are(
    settings, tmp_path, toy_spm_model, task
):
    path = write_records(tmp_path, toy_spm_model, masked_lm_prob=0.15, max_predictions_per_seq=5)
    with pytest.raises(ValueError, match=r"expected records that .* wrote with --masked_lm_prob=0"):
        pretraining.run(dataclasses.replace(settings, input_file=path))
    masked, unmasked = (find_records(found, "") for found in (path, settings.input_file))
    with pytest.raises(ValueError, match=r"contains masked tokens, but .* does not"):
        dynamic_masking.for_records(masked | unmasked, MaskingSettings(), seed=3)
    assert records_to_mask(masked, task.features, settings, seed=3).masking is None
