"""A run that was trained by a kit, without TensorFlow, is the run of `run_pretraining.py`.

The kit is made for the CPU and trained by JAX's CPU client; `make test-gpu` names the Python with
JAX.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess

import make_training_kit
import numpy as np
import pytest
import run_gpu_kit
import tensorflow as tf

from albert_tf import pretraining
from tests.conftest import ROOT
from tests.pretraining.test_dynamic_masking import SEQ_LENGTH, TINY_SHAPE, write_records

JAX_PYTHON = os.environ.get("ALBERT_COMPILER", "")
STEPS = 20


@pytest.fixture(name="settings")
def make_settings(tmp_path, toy_spm_model):
    config = tmp_path / "albert_config.json"
    shape = TINY_SHAPE | {"max_position_embeddings": SEQ_LENGTH}
    config.write_text(json.dumps(shape | {"hidden_dropout_prob": 0.1}))
    return pretraining.Settings(
        input_file=write_records(tmp_path, toy_spm_model),
        output_dir=str(tmp_path / "out"),
        albert_config_file=str(config),
        max_seq_length=SEQ_LENGTH,
        max_predictions_per_seq=5,
        dynamic_masking=True,
        train_batch_size=6,
        eval_batch_size=4,
        optimizer="lamb",
        learning_rate=0.01,
        num_train_steps=STEPS,
        num_warmup_steps=4,
        precision="float32",
        log_steps=1,
        plots=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not JAX_PYTHON, reason="needs ALBERT_COMPILER: make test-gpu")
def test_a_kit_trains_as_run_pretraining_does(settings, tmp_path):
    ordinary = dataclasses.replace(settings, output_dir=str(tmp_path / "ordinary"), do_train=True)
    pretraining.run(ordinary)
    kit, trained = str(tmp_path / "kit"), str(tmp_path / "trained")
    make_training_kit.write_kit(settings, kit, "CPU")
    program = str(ROOT / "benchmarks" / "train_gpu_kit.py")
    done = subprocess.run(
        [JAX_PYTHON, program, kit, trained, "--log_steps=10"],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["step"] for line in lines if "loss" in line] == [10, 20]
    assert lines[-1]["held_out"]["masked_lm_loss"] < lines[0]["held_out"]["masked_lm_loss"]
    make_training_kit.write_checkpoint(settings, trained)

    expected, found = (
        tf.train.load_checkpoint(f"{folder}/model.ckpt-{STEPS}")
        for folder in (ordinary.output_dir, settings.output_dir)
    )
    names = set(expected.get_variable_to_shape_map())
    assert names == set(found.get_variable_to_shape_map())
    for name in names:
        tolerance = {"rtol": 1e-3, "atol": 1e-5}
        np.testing.assert_allclose(found.get_tensor(name), expected.get_tensor(name), **tolerance)
    with open(f"{ordinary.output_dir}/metrics.jsonl", encoding="utf-8") as stream:
        reports = [json.loads(line) for line in stream]
    losses = [report["loss"] for report in reports if "loss" in report]
    np.testing.assert_allclose(np.load(f"{trained}/losses.npy"), losses, rtol=1e-4)


@pytest.mark.ci
def test_without_fused_attention_a_kit_has_no_kernels_for_gpus(settings, tmp_path):
    config = json.loads((tmp_path / "albert_config.json").read_text()) | {"hidden_size": 16}
    (tmp_path / "albert_config.json").write_text(json.dumps(config))
    for is_fused in (True, False):
        folder = str(tmp_path / f"kit_{is_fused}")
        own = {"precision": "bfloat16", "fused_attention": is_fused, "output_dir": f"{folder}_run"}
        make_training_kit.write_kit(dataclasses.replace(settings, **own), folder, "GPU")
        with gzip.open(f"{folder}/step.mlir.gz") as stream:
            assert (b"xla.gpu.triton" in stream.read()) == is_fused


def test_a_kit_needs_records_that_are_not_masked(settings):
    masked = dataclasses.replace(settings, dynamic_masking=False, max_predictions_per_seq=4)
    reason = "--dynamic_masking is needed, and records created with --masked_lm_prob=0"
    with pytest.raises(ValueError, match=reason), make_training_kit.opened(masked):
        pass


def test_a_row_of_another_form_is_refused():
    row = {
        "input_ids": np.arange(4),
        "input_mask": np.array([1, 0, 1, 0]),
        "segment_ids": np.zeros(4),
    }
    with pytest.raises(ValueError, match="another form"):
        make_training_kit.packed(row | {"token_boundary": np.ones(4)})


@pytest.mark.parametrize("name", ["../private", "/private", "part/private"])
def test_a_kit_and_what_it_has_trained_have_their_files_inside(settings, tmp_path, name):
    folder = tmp_path / "trained"
    folder.mkdir()
    (folder / "trained.json").write_text(json.dumps({"step": 1, "parts": [name]}))
    with pytest.raises(ValueError, match=rf"trained\.json names '{name}': expected a file in"):
        make_training_kit.write_checkpoint(settings, str(folder))
    with pytest.raises(ValueError, match=rf"kit\.json names '{name}': expected a file in"):
        run_gpu_kit.load_function(str(folder), {"file": name}, "cpu")
