r"""Largest differences between this model and google-research/albert's recorded numbers.

    python benchmarks/parity.py --golden_dir=../shared/golden

Prints one JSON line for each reference model: maximum absolute difference of the layers, the
pooled output and the losses, and of the gradients in units of the largest of their variable.
"""

from __future__ import annotations

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.pretraining.task import PretrainingTask

FLAGS = flags.FLAGS
flags.DEFINE_string("golden_dir", "../shared/golden", "Folder of the reference numbers.")

MODELS = {
    "encoder/shared": "model.ckpt-best",
    "encoder/groups": "model.ckpt-best",
    "encoder/no_factorization": "model.ckpt-best",
    "albert_zh_layout/postln": "albert_model.ckpt",
    "albert_zh_layout/preln": "albert_model.ckpt",
}


def largest(ours, theirs) -> float:
    """Maximum absolute difference."""
    return float(np.max(np.abs(np.asarray(ours) - theirs)))


def compare(folder: str, prefix: str) -> dict:
    """The differences of one reference model."""
    config = AlbertConfig.from_json_file(os.path.join(folder, "albert_config.json"))
    model = AlbertForPretraining(config)
    load_checkpoint(model, os.path.join(folder, prefix))
    batch = {k: tf.constant(v) for k, v in np.load(os.path.join(folder, "inputs.npz")).items()}
    expected = np.load(os.path.join(folder, "outputs.npz"))
    lengths = batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    task = PretrainingTask(config, *lengths)
    with tf.GradientTape() as tape:
        outputs = model(batch)
        encoded = model.encoder(batch, output_hidden_states=True)
        loss, _ = task.loss(outputs, batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    relative = [
        largest(tf.convert_to_tensor(gradient), theirs) / np.abs(theirs).max()
        for gradient, variable in zip(gradients, model.trainable_variables, strict=True)
        # The loss does not depend on a bias of the keys: its gradient is rounding alone.
        if (name := variable_name(variable)) and not name.endswith("key/bias")
        if f"gradient/{name}" in expected
        for theirs in [expected[f"gradient/{name}"]]
    ]
    return {
        "layers": max(
            largest(layer, expected[f"encoder_layer_{i:02d}"])
            for i, layer in enumerate(encoded["hidden_states"][1:])
        ),
        "pooled_output": largest(encoded["pooled_output"], expected["pooled_output"]),
        "loss": largest(loss, expected["masked_lm_loss"] + expected["sentence_order_loss"]),
        "gradients_relative": float(max(relative)) if relative else None,
    }


def main(_: list[str]) -> None:
    """Prints the differences of all reference models."""
    for name, prefix in MODELS.items():
        folder = os.path.join(FLAGS.golden_dir, name)
        if not os.path.isdir(folder):
            raise SystemExit(f"--golden_dir={FLAGS.golden_dir}: no reference numbers there")
        print(json.dumps({"model": name} | compare(folder, prefix)))


if __name__ == "__main__":
    app.run(main)
