"""The model at full size, compared with the graph that Google released with albert_base.

That model has dropout in its config, which must not act: its graph only predicts.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining

NAME, SEED = "albert_base_en_v1", 1234


def write_seeded_checkpoint(listing, prefix):
    """Writes random weights for the variables of a listing: those of the graph's outputs."""
    random, tensors = np.random.RandomState(SEED), {}
    for line in sorted(listing.read_text().splitlines()):
        found = re.match(r"(\S+) \[([\d, ]*)\]", line)
        if not found:
            continue
        name, shape = found[1], [int(size) for size in re.findall(r"\d+", found[2])]
        if name == "global_step":
            tensors[name] = np.int64(0)
            continue
        values = random.randn(*shape)
        if name.endswith("gamma"):
            values = 1 + 0.1 * values
        else:
            is_vector = name.endswith(("beta", "bias"))
            values = 0.05 * (values if is_vector else np.clip(values, -2, 2))
        tensors[name] = values.astype(np.float32)
    names, values = list(tensors), list(tensors.values())
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
    )


@pytest.mark.parametrize(
    "compiled",
    [
        pytest.param(lambda run: run, marks=pytest.mark.ci, id="eager"),
        pytest.param(tf.function, marks=pytest.mark.slow, id="graph"),
        pytest.param(
            functools.partial(tf.function, jit_compile=True), marks=pytest.mark.slow, id="XLA"
        ),
    ],
)
def test_the_released_graph_of_base_with_dropout_in_its_config(shared, tmp_path, compiled):
    config = AlbertConfig.from_json_file(str(shared / "released" / NAME / "albert_config.json"))
    assert config.attention_probs_dropout_prob == 0.1
    model, prefix = AlbertForPretraining(config), str(tmp_path / "model.ckpt-best")
    write_seeded_checkpoint(shared / "released" / NAME / "variables.txt", prefix)
    load_checkpoint(model, prefix)
    oracle = np.load(shared / "oracles" / NAME / "io.npz")
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: tf.constant(oracle[f"in_{name}"]) for name in names}  # [B, S] each
    positions = tf.constant(oracle["in_mlm_positions"])  # [B, P]

    def run():
        outputs = model({**inputs, "masked_lm_positions": positions})
        logits = tf.reshape(outputs["masked_lm_logits"], (-1, config.vocab_size))  # [B·P, V]
        order = tf.nn.log_softmax(outputs["sentence_order_logits"])  # [B, 2]
        return model.encoder(inputs)["pooled_output"], tf.nn.log_softmax(logits), order

    expected = (oracle[f"out_{name}"] for name in ("pooled", "mlm_logits_head", "sop_logits"))
    pooled, logits, order = (tf.constant(x) for x in expected)
    expected = pooled, tf.nn.log_softmax(logits), tf.nn.log_softmax(order)
    for ours, theirs in zip(compiled(run)(), expected, strict=True):
        np.testing.assert_allclose(ours[: len(theirs)], theirs, rtol=0, atol=3e-5)
