"""run_pretraining.py as a user runs it, on Google's reference batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

import run_pretraining
from albert_tf.checkpoints import loading
from tests.test_modeling import GOLDEN, read_golden

CONFIG = f"--albert_config_file={GOLDEN}/encoder_shared.json"
LENGTHS = ["--max_seq_length=20", "--max_predictions_per_seq=5"]


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


def run(*arguments):
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(["run_pretraining.py", *map(str, arguments)])
        run_pretraining.main([])


def read_results(path):
    pairs = (line.split(" = ") for line in path.read_text().splitlines())
    return {key: float(value) for key, value in pairs}


@pytest.fixture(name="records")
def make_records(tmp_path):
    write_batch(tmp_path / "train.tfrecord", read_golden("input/"))
    return tmp_path / "train.tfrecord"


def test_a_google_checkpoint_evaluates_to_google_losses(tmp_path, records):
    loading.save_checkpoint(str(tmp_path / "google"), read_golden("variable/"))
    output_dir = tmp_path / "out"
    run(CONFIG, *LENGTHS, f"--input_file={records}", f"--output_dir={output_dir}",
        "--do_train=False", "--do_eval", f"--init_checkpoint={tmp_path}/google",
        "--precision=float32")  # fmt: skip
    results = read_results(output_dir / "eval_results.txt")
    expected = read_golden("output/")
    assert results["loss"] == pytest.approx(float(expected["total_loss"]), rel=1e-5)
    assert results["sentence_order_loss"] == pytest.approx(
        float(expected["sentence_order_loss"]), rel=1e-5
    )
    assert set(results) == {
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "sentence_order_accuracy",
        "sentence_order_loss",
    }
    assert not list(output_dir.glob("*.index"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["shared", "groups", "no_factorization"])
def test_reference_checkpoints_evaluate_to_reference_losses(shared, tmp_path, folder):
    path = shared / "golden" / "encoder" / folder
    inputs = dict(np.load(path / "inputs.npz"))
    write_batch(tmp_path / "x.tfrecord", inputs)
    run(f"--albert_config_file={path}/albert_config.json", f"--input_file={tmp_path}/x.tfrecord",
        f"--max_seq_length={inputs['input_ids'].shape[1]}", f"--output_dir={tmp_path}/out",
        f"--max_predictions_per_seq={inputs['masked_lm_ids'].shape[1]}", "--do_train=False",
        "--do_eval", f"--init_checkpoint={path}/model.ckpt-best",
        "--precision=float32")  # fmt: skip
    results = read_results(tmp_path / "out" / "eval_results.txt")
    with np.load(path / "outputs.npz") as expected:
        assert results["loss"] == pytest.approx(float(expected["total_loss"]), rel=1e-5)
        weight = inputs["masked_lm_weights"].sum()
        assert results["masked_lm_loss"] == pytest.approx(
            float(expected["masked_lm_loss"]) * (weight + 1e-5) / weight, rel=1e-5
        )


def test_training_with_albert_zh_spellings_resumes_and_finds_the_best(tmp_path, records):
    held_out = tmp_path / "held_out.tfrecord"
    write_batch(held_out, read_golden("input/"), copies=2)
    output_dir = tmp_path / "out"
    arguments = [
        f"--bert_config_file={GOLDEN}/encoder_shared.json", *LENGTHS, f"--input_file={records}",
        f"--output_dir={output_dir}", "--do_train=True", "--do_eval=True", "--optimizer=adamw",
        "--train_batch_size=6", "--learning_rate=0.01", "--num_warmup_steps=1",
        "--save_checkpoints_steps=4", f"--eval_input_file={held_out}", "--eval_batch_size=5",
        "--export_dir=x", "--master=", "--num_tpu_cores=8", "--iterations_per_loop=2",
    ]  # fmt: skip
    run(*arguments, "--num_train_steps=5")
    assert list(loading.list_checkpoints(str(output_dir))) == [0, 4, 5]
    run(*arguments, "--num_train_steps=9")
    assert list(loading.list_checkpoints(str(output_dir))) == [0, 4, 5, 8, 9]
    losses = [
        float(line.split(" = ")[1])
        for line in (output_dir / "eval_results.txt").read_text().splitlines()
        if line.startswith("loss")
    ]
    assert len(losses) == 5
    assert losses[-1] < losses[0] - 0.5
    assert (output_dir / "model.ckpt-best.index").exists()
    assert (output_dir / "metrics.jsonl").exists()
    assert list(output_dir.glob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--do_train=False"], "nothing to do"),
        (["--use_tpu"], "--use_tpu"),
        (["--masked_lm_budget=3"], "--masked_lm_budget"),
        (["--max_seq_length=41"], "--max_seq_length=41 is larger than max_position_.*=40"),
        (["--train_batch_size=7"], "--train_batch_size=7 is larger than the data: 6 records"),
        (["--input_file=none*"], r"'none\*' matches no file"),
        (["--train_batch_size=6", "--init_checkpoint=none"], "none: no such checkpoint"),
    ],
)
def test_bad_flags_are_refused_before_training(tmp_path, records, arguments, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(CONFIG, *LENGTHS, f"--input_file={records}", f"--output_dir={tmp_path}/out", *arguments)
    assert not list(tmp_path.glob("out/*.index"))


def test_a_checkpoint_that_lacks_a_part_is_refused(tmp_path, records):
    weights = read_golden("variable/")
    del weights["bert/pooler/dense/kernel"]
    loading.save_checkpoint(str(tmp_path / "part"), weights)
    arguments = [CONFIG, *LENGTHS, f"--input_file={records}", f"--output_dir={tmp_path}/out",
                 f"--init_checkpoint={tmp_path}/part", "--train_batch_size=6"]  # fmt: skip
    with pytest.raises(ValueError, match=r"missing +bert/pooler/dense/kernel"):
        run(*arguments)
    with pytest.raises(ValueError, match=r"bert/pooler/dense/kernel: missing there"):
        run(*arguments, "--do_train=False", "--do_eval")
