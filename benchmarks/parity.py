r"""Measures the differences between this model and reference numbers of the official programs.

    python benchmarks/parity.py

compares with the outputs in tests/golden, which google-research/albert and brightmart/albert_zh
computed with random weights. Prints one JSON line for each model: the maximum absolute difference
of the layers, the pooled output and the loss, and of the gradients relative to the largest gradient
of their variable. --golden_dir selects another folder, which may also contain models as subfolders
with a checkpoint, a config, inputs and outputs.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import sys
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf
from absl import app, flags
from numpy.typing import NDArray

from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.pretraining.task import PretrainingTask

FLAGS = flags.FLAGS
GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests/golden")
flags.DEFINE_string("golden_dir", GOLDEN, "Folder of the reference numbers.")

MODELS = {  # each in a single file
    "encoder_shared": "google-research/albert",
    "albert_zh_postln": "albert_zh, post-LN",
    "albert_zh_preln": "albert_zh, pre-LN",
}
Array = NDArray[np.float64]
Arrays = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Reference:
    """A model with random weights, and what an official program computed with these weights.

    Attributes:
        name: name of the model.
        model: this library's model with the same weights.
        inputs: a batch.
        outputs: outputs of the official program, and gradients as `gradient/<variable>`.
    """

    name: str
    model: AlbertForPretraining
    inputs: Arrays
    outputs: Arrays


def read_file(folder: str, name: str) -> Reference:
    """Reads a model whose weights, inputs and outputs are in a single file."""
    arrays = dict(np.load(os.path.join(folder, f"{name}.npz")))
    model = AlbertForPretraining(AlbertConfig.from_json_file(os.path.join(folder, f"{name}.json")))
    for variable in model.variables:
        variable.assign(arrays[f"variable/{variable_name(variable)}"])

    def part(prefix: str) -> Arrays:
        return {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}

    gradients = {n: x for n, x in arrays.items() if n.startswith("gradient/")}
    return Reference(MODELS[name], model, part("input/"), part("output/") | gradients)


def read_folder(folder: str, name: str) -> Reference:
    """Reads a model whose weights are in a checkpoint."""
    model = AlbertForPretraining(
        AlbertConfig.from_json_file(os.path.join(folder, "albert_config.json"))
    )
    load_checkpoint(model, folder)
    inputs, outputs = (
        dict(np.load(os.path.join(folder, f"{part}.npz"))) for part in ("inputs", "outputs")
    )
    return Reference(name, model, inputs, outputs)


def references(golden_dir: str) -> Iterator[Reference]:
    """Yields all reference models in a folder."""
    for name in MODELS:
        if os.path.isfile(os.path.join(golden_dir, f"{name}.npz")):
            yield read_file(golden_dir, name)
    for config_file in sorted(glob.glob(os.path.join(golden_dir, "*", "*", "albert_config.json"))):
        folder = os.path.dirname(config_file)
        if os.path.basename(os.path.dirname(folder)) in ("encoder", "albert_zh_layout"):
            yield read_folder(folder, os.path.relpath(folder, golden_dir))


def largest(ours: tf.Tensor, theirs: Array | float) -> float:
    """Returns the maximum absolute difference."""
    return float(np.max(np.abs(np.asarray(ours) - theirs)))


def total_loss(inputs: Arrays, outputs: Arrays) -> float:
    """Returns the sum of an official program's two losses, from its log probabilities if needed."""
    if "masked_lm_loss" in outputs:
        return float(outputs["masked_lm_loss"] + outputs["sentence_order_loss"])
    words = outputs["masked_lm_log_probs"]
    order = outputs["sentence_order_log_probs"]
    ids = inputs["masked_lm_ids"].ravel()
    weights = inputs["masked_lm_weights"].ravel()
    labels = inputs["next_sentence_labels"].ravel()
    masked_lm = -(words[np.arange(len(ids)), ids] * weights).sum() / (weights.sum() + 1e-5)
    return float(masked_lm - order[np.arange(len(labels)), labels].mean())


def compare(reference: Reference) -> dict[str, float | None]:
    """Returns the differences for one reference model."""
    model = reference.model
    expected = reference.outputs
    batch = {name: tf.constant(value) for name, value in reference.inputs.items()}
    lengths = batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    task = PretrainingTask(model.config, *lengths)
    with tf.GradientTape() as tape:
        outputs = model(batch)
        encoded = model.encoder(batch, output_hidden_states=True)
        loss, _ = task.loss(outputs, batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    relative = [
        largest(tf.convert_to_tensor(gradient), theirs) / np.abs(theirs).max()
        for gradient, variable in zip(gradients, model.trainable_variables, strict=True)
        # The loss does not depend on the bias of the keys, so its gradient is only rounding error.
        if (name := variable_name(variable)) and not name.endswith("key/bias")
        if f"gradient/{name}" in expected
        for theirs in [expected[f"gradient/{name}"]]
    ]
    layers = encoded["hidden_states"][1:]
    ours = {"sequence_output": layers[-1]}
    ours |= {f"encoder_layer_{i:02d}": layer for i, layer in enumerate(layers)}
    return {
        "layers": max(largest(ours[name], expected[name]) for name in ours if name in expected),
        "pooled_output": largest(encoded["pooled_output"], expected["pooled_output"]),
        "loss": largest(loss, total_loss(reference.inputs, expected)),
        "gradients_relative": float(max(relative)) if relative else None,
    }


def main(_: list[str]) -> None:
    """Prints the differences of all reference models."""
    is_empty = True
    for reference in references(FLAGS.golden_dir):
        print(json.dumps({"model": reference.name} | compare(reference)))
        is_empty = False
    if is_empty:
        raise SystemExit(f"--golden_dir={FLAGS.golden_dir} contains no reference numbers")


if __name__ == "__main__":
    app.run(main)
