"""Lowers KerasHub's ALBERT by JAX for a TPU or GPU, as a contender of `bench_accelerators.py`.

    python worker_keras_jax.py '{"path": "step.hlo", "rows": 8, "length": 512, …}'

writes the HLO program of the forward and backward pass of a pre-training step in bfloat16. Needs
`jax` and `keras-hub`, and nothing of this project.
"""

from __future__ import annotations

import os
from typing import Any

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}

import contenders
import jax
import jax.numpy as jnp
import keras_hub
import worker_keras


def make_model(job: dict[str, Any]) -> Any:
    """Returns the model with both pre-training heads."""
    keras, encoder, names = worker_keras.keras_hub_encoder(
        job["config"], "bfloat16", job["dropout"]
    )
    inputs = {name: keras.Input((job["length"],), dtype="int32", name=name) for name in names}
    positions = keras.Input((job["predictions"],), dtype="int32", name="positions")
    encoded = encoder(inputs)
    head = keras_hub.layers.MaskedLMHead(
        token_embedding=encoder.token_embedding, intermediate_activation="gelu"
    )
    words = head(encoded["sequence_output"], mask_positions=positions)
    order = keras.layers.Dense(2, dtype="float32")(encoded["pooled_output"])
    return keras.Model([*inputs.values(), positions], [words, order])


def main() -> None:
    """Lowers the step that the command line describes."""
    job = contenders.read_job()
    model = make_model(job)
    rows = job["rows"]

    def loss_of(
        weights: Any,
        others: Any,
        ids: Any,
        mask: Any,
        segments: Any,
        positions: Any,
        words: Any,
        weight: Any,
        order: Any,
    ) -> Any:
        inputs = [ids, mask, segments, positions]
        (logits, scores), _ = model.stateless_call(weights, others, inputs, training=True)
        log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
        losses = -jnp.take_along_axis(log_probs, words[..., None], -1)[..., 0] * weight
        pairs = -jnp.take_along_axis(jax.nn.log_softmax(scores.astype(jnp.float32)), order, -1)
        return losses.sum() / (weight.sum() + 1e-5) + pairs.mean()

    def spec(size: int, dtype: Any = jnp.int32) -> Any:
        return jax.ShapeDtypeStruct((rows, size), dtype)

    variables = model.trainable_variables, model.non_trainable_variables
    arguments: list[Any] = [
        [jax.ShapeDtypeStruct(x.shape, x.value.dtype) for x in group] for group in variables
    ]
    arguments += [spec(job["length"])] * 3 + [spec(job["predictions"])] * 2
    arguments += [spec(job["predictions"], jnp.float32), spec(1)]
    platform = {"TPU": "tpu", "GPU": "cuda"}[job["platform"]]
    traced = jax.jit(jax.value_and_grad(loss_of)).trace(*arguments)
    lowered = traced.lower(lowering_platforms=(platform,))
    with open(job["path"], "wb") as stream:
        stream.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main()
