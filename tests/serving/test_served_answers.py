"""Tests that exports loaded in a fresh process match the predictors of the training run."""

from __future__ import annotations

import numpy as np
import pytest

import albert_tf
from albert_tf import classification
from tests.serving.fresh_process import serve

TEXTS = [
    "The river carries the rain.",
    "A small boat waits at the landing, and nobody knows whose it is.",
    "",
    "😀 👩‍👩‍👧 e\u0301",
    "the river " * 1000,
    "\ufffd\ufffdriver and the boat",
]
# The last text, in bytes.
BROKEN = b"\xff\xferiver and the boat".decode("utf-8", "surrogateescape")


@pytest.fixture(name="always")
def settings_of_all(config_file, toy_spm_model, tmp_path):
    return {
        "albert_config_file": str(config_file),
        "spm_model_file": toy_spm_model,
        "output_dir": str(tmp_path / "out"),
        "export_dir": str(tmp_path / "export"),
        "precision": "float32",
        "train_batch_size": 3,
        "do_train": True,
        "do_eval": False,
    }


@pytest.mark.slow
def test_a_classifier_matches_its_predictor(always, tmp_path):
    rows = [f"{text}\t{label}\n" for text, label in zip(TEXTS[:2], "yn", strict=True)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
    settings = classification.Settings(
        task_name="tsv",
        data_dir=str(tmp_path),
        max_seq_length=17,
        train_step=2,
        **always,
    )
    classification.run(settings)
    (folder,) = (tmp_path / "export").iterdir()
    times = 6  # more texts than a batch has
    found = serve(folder, text_a=[*TEXTS[:-1], BROKEN] * times, text_b=[""] * len(TEXTS) * times)
    expected = albert_tf.load_predictor(settings.output_dir)(TEXTS) * times
    probabilities = [list(result["probabilities"].values()) for result in expected]
    np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
