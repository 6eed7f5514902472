"""A contender: the ALBERT encoders of keras-hub and of the TensorFlow Model Garden.

Started by `contenders.py`. Both get the same heads, made of what their libraries offer, and a
gradient step as plain as their own examples': AdamW with clipping by the global norm.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import contenders
import tensorflow as tf
import worker_loop


def keras_hub_encoder(config: dict[str, Any]) -> tuple[Any, Any, Any]:
    """keras, a function of a batch to sequence and pooled output, and the layers."""
    import keras
    import keras_hub

    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        embedding_dim=config["embedding_size"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        dropout=0.0,
    )

    names = {
        "token_ids": "input_ids",
        "padding_mask": "input_mask",
        "segment_ids": "segment_ids",
    }
    return keras, _encode_with(backbone, names), backbone


def model_garden_encoder(config: dict[str, Any]) -> tuple[Any, Any, Any]:
    """As `keras_hub_encoder`."""
    import tf_keras as keras
    from official.nlp.modeling import networks

    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    encoder = networks.AlbertEncoder(
        vocab_size=config["vocab_size"],
        embedding_width=config["embedding_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dict_outputs=True,
    )

    names = {
        "input_word_ids": "input_ids",
        "input_mask": "input_mask",
        "input_type_ids": "segment_ids",
    }
    return keras, _encode_with(encoder, names), encoder


def _encode_with(model: Any, names: dict[str, str]) -> Any:
    """A function of a batch to sequence and pooled output; `names`: the model's → ours."""

    def encode(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        outputs = model({theirs: batch[ours] for theirs, ours in names.items()}, training=True)
        return outputs["sequence_output"], outputs["pooled_output"]

    return encode


def main() -> None:
    """Computes the steps of a pre-training job."""
    job = worker_loop.read_job()
    config = job["config"]
    make = {"keras_hub": keras_hub_encoder, "model_garden": model_garden_encoder}[job["library"]]
    keras, encode, encoder = make(config)
    words = keras.layers.Dense(config["embedding_size"], activation="gelu")
    scores, order = (keras.layers.Dense(n, dtype="float32") for n in (config["vocab_size"], 2))
    optimizer = keras.optimizers.AdamW(1e-4, global_clipnorm=1.0)
    (arrays,) = contenders.load_batches(job["batches"])
    batch = {name: tf.constant(value) for name, value in arrays.items()}

    def loss_of(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        sequence, pooled = encode(batch)
        x = tf.gather(sequence, batch["masked_lm_positions"], batch_dims=1)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        word_loss = loss(batch["masked_lm_ids"], scores(words(x)))
        return word_loss + loss(batch["next_sentence_labels"][:, 0], order(pooled))

    loss_of(batch)
    layers = (encoder, words, scores, order)
    variables = [variable for layer in layers for variable in layer.trainable_variables]
    optimizer.build(variables)

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(batch)
        found = tape.gradient(loss, [getattr(v, "value", v) if job["library"] == "keras_hub" else v
                                     for v in variables])  # fmt: skip
        pairs = zip(found, variables, strict=True)
        optimizer.apply_gradients([(g, v) for g, v in pairs if g is not None])
        return loss

    worker_loop.serve(lambda number: step(batch).numpy())


if __name__ == "__main__":
    main()
