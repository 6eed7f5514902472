"""Lowers a pre-training step at full size for `bench_accelerators.py`; needs `tensorflow-tpu`.

    python worker_lower.py ours albert_base 8 512 step.hlo

writes the HLO program of a TPU for 8 rows of 512 tokens in bfloat16, with dropout 0.1 and 20 masked
positions: "ours" for the forward and backward pass, "update" with the update by LAMB as well,
"model_garden" for the forward and backward pass of the TensorFlow Model Garden's encoder.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from lowering import lower, variables_of

from albert_tf import config, included, optimization
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import precision
from albert_tf.training.step import TrainStep

PREDICTIONS, DROPOUT = 20, 0.1


def batch_of(rows: int, length: int) -> dict[str, Any]:
    """Returns a batch of zeros, of which only shapes and dtypes matter."""
    sizes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), length)
    sizes |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), PREDICTIONS)
    batch: dict[str, Any] = {name: np.zeros((rows, n), np.int32) for name, n in sizes.items()}
    batch["masked_lm_weights"] = np.zeros((rows, PREDICTIONS), np.float32)
    batch["next_sentence_labels"] = np.zeros((rows, 1), np.int32)
    return batch


def read_config(name: str) -> config.AlbertConfig:
    """Returns a released config with dropout."""
    rates = {"hidden_dropout_prob": DROPOUT, "attention_probs_dropout_prob": DROPOUT}
    made_of = config.AlbertConfig.from_json_file(included.config_file(name))
    return config.AlbertConfig.from_dict(made_of.to_dict() | rates)


def make_step(name: str, length: int) -> TrainStep:
    """Returns our training step."""
    task = PretrainingTask(read_config(name), length, PREDICTIONS)
    schedule = optimization.WarmUpPolynomialDecay(0.001, 125_000, 3125)
    return TrainStep(task.build_model(), task, optimization.create_optimizer("lamb", schedule))


def lower_ours(name: str, rows: int, length: int) -> bytes:
    """Returns the forward and backward pass."""
    step = make_step(name, length)

    def gradients(batch: Any, seed: tf.Tensor) -> Any:
        found, sums = step._gradients(batch, step.task.loss_weights(batch), seed)
        return [*found.dense.values(), *found.embedding.values()], sums

    batch, seed = batch_of(rows, length), np.array((1, 2), np.int32)
    return lower(gradients, step.model.variables, "TPU", batch, seed)


def lower_update(name: str, rows: int, length: int) -> bytes:
    """Returns the whole step."""
    step, flags = make_step(name, length), (np.array(True), np.array(False))
    return lower(step._run, variables_of(step), "TPU", batch_of(rows, length), *flags)


def lower_model_garden(name: str, rows: int, length: int) -> bytes:
    """Returns the forward and backward pass of the Model Garden's encoder, with such heads."""
    from official.nlp.modeling import layers, networks

    made_of = read_config(name)
    encoder = networks.AlbertEncoder(
        vocab_size=made_of.vocab_size,
        embedding_width=made_of.embedding_size,
        hidden_size=made_of.hidden_size,
        num_layers=made_of.num_hidden_layers,
        num_attention_heads=made_of.num_attention_heads,
        intermediate_size=made_of.intermediate_size,
        dropout_rate=DROPOUT,
        attention_dropout_rate=DROPOUT,
        dict_outputs=True,
    )
    words = layers.MaskedLM(encoder.get_embedding_table(), activation="gelu")
    order = tf_keras.layers.Dense(2, dtype="float32")

    def loss_of(batch: Any) -> tf.Tensor:
        names = ("input_word_ids", "input_mask", "input_type_ids")
        values = (batch[key] for key in ("input_ids", "input_mask", "segment_ids"))
        outputs = encoder(dict(zip(names, values, strict=True)), training=True)
        logits = words(outputs["sequence_output"], batch["masked_lm_positions"])
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        first = loss(batch["masked_lm_ids"], tf.cast(logits, tf.float32))
        return first + loss(batch["next_sentence_labels"][:, 0], order(outputs["pooled_output"]))

    batch = batch_of(rows, length)
    loss_of({key: tf.constant(value[:, :64]) for key, value in batch.items()})  # makes the weights
    variables = [*encoder.trainable_variables, *words.trainable_variables, *order.variables]
    variables = list({id(variable): variable for variable in variables}.values())
    others = [*encoder.variables, *words.variables, *order.variables]
    every = list({id(variable): variable for variable in others}.values())

    def gradients(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(batch)
        found = tape.gradient(loss, variables)
        return loss, [tf.convert_to_tensor(x) for x in found if x is not None]

    return lower(gradients, every, "TPU", batch)


def main() -> None:
    """Writes the program that the command line names."""
    kind, name, rows, length, path = sys.argv[1:]
    precision.apply("bfloat16")
    make = {"ours": lower_ours, "update": lower_update, "model_garden": lower_model_garden}[kind]
    with open(path, "wb") as stream:
        stream.write(make(name, int(rows), int(length)))


if __name__ == "__main__":
    main()
