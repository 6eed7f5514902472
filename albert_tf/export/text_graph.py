"""The signature for raw strings, which computes the outputs of a model in batches in the graph.

It takes any number of texts. In a single batch, they would need memory for all of them at once,
and all would be as long as the longest one.

Letters: N rows, S sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import tensorflow as tf
from absl import logging

from albert_tf import tensorflow_packages
from albert_tf.export.signatures import TEXTS, Signature, Tensors
from albert_tf.model.tokenization import Tokenizer

Outputs = TypeVar("Outputs")  # any structure of tensors

BATCH_SIZE = 32  # in a batch, as in `load_predictor`


def text_signatures(
    tokenizer: Tokenizer | None,
    model: Callable[[Tensors], Outputs],
    outputs: Callable[[Outputs], Tensors],
    max_seq_length: int,
    pad_to: int | None = None,
) -> dict[str, Signature]:
    """Returns the signature `texts` of a model; {} without a tokenizer for graphs, which is logged.

    Its inputs are `text_a` and `text_b`, string [N], where the latter may be "".

    Args:
        tokenizer: the tokenizer of the model; None if it is unknown.
        model: as in `compute_in_batches`.
        outputs: converts the model's outputs to name → output of the signature.
        max_seq_length: maximum number of tokens in a row, including special tokens.
        pad_to: S; None for models whose outputs do not depend on padding, which is left out.
    """
    if tokenizer is None:
        return {}
    if not tensorflow_packages.has_text():
        text = "tensorflow-text is not installed: the export takes ids, not texts. pip install %s"
        logging.warning(text, tensorflow_packages.requirement("tensorflow-text"))
        return {}
    # Imported late: takes 0.2 s, with tensorflow-text, which a run without an export does not need.
    from albert_tf.model.graph_tokenizer import GraphTokenizer, is_supported

    if not is_supported(tokenizer):
        return {}
    graph = GraphTokenizer(tokenizer)

    def answer(texts: Tensors) -> Tensors:
        batch = graph.pack(texts["text_a"], texts["text_b"], max_seq_length, pad_to)
        return outputs(compute_in_batches(model, batch, is_trimmed=pad_to is None))

    inputs = dict.fromkeys(("text_a", "text_b"), tf.TensorSpec([None], tf.string))
    return {TEXTS: Signature(inputs, answer, graph)}


def compute_in_batches(
    model: Callable[[Tensors], Outputs],
    features: Mapping[str, tf.Tensor],
    is_trimmed: bool = False,
) -> Outputs:
    """Returns the outputs of a model for N rows, computed for at most BATCH_SIZE at a time.

    Args:
        model: returns the outputs of a batch, which have a row for each row of the batch, in any
            structure.
        features: `input_ids`, `input_mask` and others, int32 [N, S].
        is_trimmed: whether batches are made of rows of similar length, and cut to the longest of
            them. The outputs then must depend neither on padding nor, in their shapes, on S.

    Returns:
        The outputs in the order of the rows, [N, …] each.
    """
    mask = features["input_mask"]
    count = tf.shape(mask)[0]
    if is_trimmed:
        lengths = tf.reduce_sum(mask, -1)  # [N]
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # [N]
        lengths = tf.gather(lengths, order)
        features = {name: tf.gather(feature, order) for name, feature in features.items()}

    def compute_part(number: tf.Tensor) -> Outputs:
        rows = slice(number * BATCH_SIZE, (number + 1) * BATCH_SIZE)
        part = {name: feature[rows] for name, feature in features.items()}
        if is_trimmed:
            longest = tf.reduce_max(tf.concat(([1], lengths[rows]), 0))
            part = {name: x[:, :longest] for name, x in part.items()}
        return model(part)

    # Traced separately because the loop needs the dtypes and shapes of the outputs in advance.
    traced = tf.function(compute_part, autograph=False)
    traced = traced.get_concrete_function(tf.TensorSpec((), tf.int32))
    parts = tf.maximum((count + BATCH_SIZE - 1) // BATCH_SIZE, 1)
    outputs = [
        tf.TensorArray(spec.dtype, parts, infer_shape=False, element_shape=[None, *spec.shape[1:]])
        for spec in tf.nest.flatten(traced.structured_outputs)
    ]

    def add(
        number: tf.Tensor, outputs: list[tf.TensorArray]
    ) -> tuple[tf.Tensor, list[tf.TensorArray]]:
        values = tf.nest.flatten(traced(number))
        written = [x.write(number, value) for x, value in zip(outputs, values, strict=True)]
        return number + 1, written

    _, outputs = tf.while_loop(
        lambda number, _: number < parts, add, (0, outputs), parallel_iterations=1
    )
    values = [output.concat() for output in outputs]  # [N, …] each
    if is_trimmed:
        places = tf.argsort(order)  # [N]
        values = [tf.gather(value, places) for value in values]
    packed: Outputs = tf.nest.pack_sequence_as(traced.structured_outputs, values)
    return packed
