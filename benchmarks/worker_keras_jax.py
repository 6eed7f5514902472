"""Compiles KerasHub's ALBERT by JAX for a TPU, as a contender of `bench_accelerators.py`.

    python worker_keras_jax.py '{"topology": "v4:2x2x1", "rows": 8, "length": 512, …}'

prints a line of JSON: the forward and backward pass of a pre-training step in bfloat16, compiled
for a TPU that this machine lacks. Needs `jax[tpu]` and `keras-hub`, and nothing of this project.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

import jax
import jax.numpy as jnp
import keras
import keras_hub
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding


def make_model(config: dict, length: int, predictions: int, dropout: float) -> keras.Model:
    """Returns the model with both pre-training heads."""
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    encoder = keras_hub.models.AlbertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        embedding_dim=config["embedding_size"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        dropout=dropout,
    )
    names = ("token_ids", "segment_ids", "padding_mask")
    inputs = {name: keras.Input((length,), dtype="int32", name=name) for name in names}
    positions = keras.Input((predictions,), dtype="int32", name="positions")
    encoded = encoder(inputs)
    head = keras_hub.layers.MaskedLMHead(
        token_embedding=encoder.token_embedding, intermediate_activation="gelu"
    )
    words = head(encoded["sequence_output"], mask_positions=positions)
    order = keras.layers.Dense(2, dtype="float32")(encoded["pooled_output"])
    return keras.Model([*inputs.values(), positions], [words, order])


def main() -> None:
    """Compiles the step that the command line describes."""
    job = json.loads(sys.argv[1])
    rows, length, predictions = job["rows"], job["length"], job["predictions"]
    model = make_model(job["config"], length, predictions, job["dropout"])

    def loss_of(weights, others, ids, segments, mask, positions, words, weight, order):
        inputs = [ids, segments, mask, positions]
        (logits, scores), _ = model.stateless_call(weights, others, inputs, training=True)
        found = jax.nn.log_softmax(logits.astype(jnp.float32))
        losses = -jnp.take_along_axis(found, words[..., None], -1)[..., 0] * weight
        pairs = -jnp.take_along_axis(jax.nn.log_softmax(scores.astype(jnp.float32)), order, -1)
        return losses.sum() / (weight.sum() + 1e-5) + pairs.mean()

    described = topologies.get_topology_desc(platform="tpu", topology_name=job["topology"])
    sharding = SingleDeviceSharding(described.devices[0])

    def spec(shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    variables = model.trainable_variables, model.non_trainable_variables
    arguments = [[spec(x.shape, x.value.dtype) for x in found] for found in variables]
    arguments += [spec((rows, length))] * 3 + [spec((rows, predictions))] * 2
    arguments += [spec((rows, predictions), jnp.float32), spec((rows, 1))]
    begin = time.perf_counter()
    compiled = jax.jit(jax.value_and_grad(loss_of)).lower(*arguments).compile()
    seconds = time.perf_counter() - begin
    costs, memory = compiled.cost_analysis(), compiled.memory_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    answer = {
        "seconds": round(seconds, 1),
        "flops": costs["flops"],
        "bytes_accessed": costs["bytes accessed"],
        "temporary_bytes": memory.temp_size_in_bytes,
        "versions": {package.__name__: package.__version__ for package in (jax, keras_hub)},
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
