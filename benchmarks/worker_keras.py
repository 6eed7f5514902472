"""Runs the ALBERT encoders of keras-hub and the TensorFlow Model Garden as contenders.

Started by `contenders.py`. Both get the same heads, built from layers of their libraries, and a
training step as in their own examples: AdamW with clipping by the global norm.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import contenders
import tensorflow as tf

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}  # precision of a job → Keras policy


def keras_hub_encoder(
    config: dict[str, Any], precision: str, dropout: float = 0.0
) -> tuple[Any, Any, dict[str, str]]:
    """Returns keras, the encoder, and its input names → our input names."""
    import keras
    import keras_hub

    keras.mixed_precision.set_dtype_policy(POLICIES[precision])
    encoder = keras_hub.models.AlbertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        embedding_dim=config["embedding_size"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        dropout=dropout,
    )
    names = ("token_ids", "padding_mask", "segment_ids")
    return keras, encoder, dict(zip(names, contenders.INPUTS, strict=True))


def model_garden_encoder(
    config: dict[str, Any], precision: str, dropout: float = 0.0
) -> tuple[Any, Any, dict[str, str]]:
    """Returns the same as `keras_hub_encoder`, for the Model Garden."""
    import tf_keras as keras
    from official.nlp.modeling import networks

    keras.mixed_precision.set_global_policy(POLICIES[precision])
    encoder = networks.AlbertEncoder(
        vocab_size=config["vocab_size"],
        embedding_width=config["embedding_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        dropout_rate=dropout,
        attention_dropout_rate=dropout,
        dict_outputs=True,
    )
    names = ("input_word_ids", "input_mask", "input_type_ids")
    return keras, encoder, dict(zip(names, contenders.INPUTS, strict=True))


def main() -> None:
    """Computes the steps of a pre-training job."""
    job = contenders.read_job()
    config = job["config"]
    is_keras_3 = job["library"] == "keras_hub"
    make = keras_hub_encoder if is_keras_3 else model_garden_encoder
    keras, encoder, names = make(config, job["precision"])
    words = keras.layers.Dense(config["embedding_size"], activation="gelu")
    scores, order = (keras.layers.Dense(n, dtype="float32") for n in (config["vocab_size"], 2))
    optimizer = keras.optimizers.AdamW(1e-4, global_clipnorm=1.0)
    (arrays,) = contenders.load_batches(job["batches"])
    batch = {name: tf.constant(value) for name, value in arrays.items()}

    def loss_of(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        outputs = encoder({theirs: batch[ours] for theirs, ours in names.items()}, training=True)
        x = tf.gather(outputs["sequence_output"], batch["masked_lm_positions"], batch_dims=1)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        word_loss = loss(batch["masked_lm_ids"], scores(words(x)))
        return word_loss + loss(
            batch["next_sentence_labels"][:, 0], order(outputs["pooled_output"])
        )

    loss_of(batch)
    layers = (encoder, words, scores, order)
    variables = [variable for layer in layers for variable in layer.trainable_variables]
    optimizer.build(variables)
    sources = [variable.value if is_keras_3 else variable for variable in variables]

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(batch)
        pairs = zip(tape.gradient(loss, sources), variables, strict=True)
        optimizer.apply_gradients([(g, v) for g, v in pairs if g is not None])
        return loss

    contenders.serve(lambda number: step(batch).numpy(), job)


if __name__ == "__main__":
    main()
