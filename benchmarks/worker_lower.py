"""Lowers a pre-training step for `bench_accelerators.py`; for a TPU, needs `tensorflow-tpu`.

    python worker_lower.py '{"program": "ours", "path": "step.hlo", "rows": 8, "length": 512, …}'

writes the HLO program of a platform ("TPU" or "GPU") for a step in bfloat16: "ours" for the forward
and backward pass, "update" with the update by LAMB as well, "model_garden" for the forward and
backward pass of the TensorFlow Model Garden's encoder. The other keys are in
`bench_accelerators.py`.
"""

from __future__ import annotations

from typing import Any

import check_device
import contenders
import numpy as np
import tensorflow as tf
import tf_keras
import worker_keras
from lowering import each_once, lower, lower_step

from albert_tf.model.config import AlbertConfig
from albert_tf.training import devices
from albert_tf.training.step import TrainStep

Job = dict[str, Any]


def make_step(job: Job) -> tuple[TrainStep, Any]:
    """Returns our training step with LAMB, and a batch."""
    config = AlbertConfig.from_dict(job["config"])
    sizes = job["rows"], job["length"], job["predictions"], config.vocab_size
    batch = check_device.random_batch(*sizes)
    strategy = tf.distribute.get_strategy()
    return check_device.make_step(strategy, config, batch, optimizer="lamb")


def lower_ours(job: Job) -> bytes:
    """Returns the forward and backward pass."""
    step, batch = make_step(job)

    def gradients(batch: Any, seed: tf.Tensor) -> Any:
        computed, sums = step._gradients(batch, step.task.loss_weights(batch), seed)
        return [*computed.dense.values(), *computed.embedding.values()], sums

    seed = np.array((1, 2), np.int32)
    program: bytes = lower(gradients, step.model.variables, job["platform"], batch, seed)
    return program


def lower_update(job: Job) -> bytes:
    """Returns the whole step."""
    step, batch = make_step(job)
    program: bytes = lower_step(step, batch, job["platform"])
    return program


def lower_model_garden(job: Job) -> bytes:
    """Returns the forward and backward pass of the Model Garden's encoder, with such heads."""
    from official.nlp.modeling import layers

    config = job["config"]
    _, encoder, names = worker_keras.model_garden_encoder(config, "bfloat16", job["dropout"])
    words = layers.MaskedLM(encoder.get_embedding_table(), activation="gelu")
    order = tf_keras.layers.Dense(2, dtype="float32")

    def loss_of(batch: Any) -> tf.Tensor:
        outputs = encoder({theirs: batch[ours] for theirs, ours in names.items()}, training=True)
        logits = words(outputs["sequence_output"], batch["masked_lm_positions"])
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        first = loss(batch["masked_lm_ids"], tf.cast(logits, tf.float32))
        return first + loss(batch["next_sentence_labels"][:, 0], order(outputs["pooled_output"]))

    sizes = job["rows"], job["length"], job["predictions"], config["vocab_size"]
    batch = check_device.random_batch(*sizes)
    loss_of({name: tf.constant(value[:1]) for name, value in batch.items()})  # makes the weights
    trained = each_once(x for made in (encoder, words, order) for x in made.trainable_variables)

    def gradients(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(batch)
        computed = tape.gradient(loss, trained)
        return loss, [tf.convert_to_tensor(x) for x in computed if x is not None]

    every = each_once(x for made in (encoder, words, order) for x in made.variables)
    program: bytes = lower(gradients, every, job["platform"], batch)
    return program


def main() -> None:
    """Writes the program that the command line describes."""
    job = contenders.read_job()
    devices.apply_precision("bfloat16")
    makers = {"ours": lower_ours, "update": lower_update, "model_garden": lower_model_garden}
    with open(job["path"], "wb") as stream:
        stream.write(makers[job["program"]](job))


if __name__ == "__main__":
    main()
