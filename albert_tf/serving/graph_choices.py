"""Builds the input of multiple-choice models from raw strings, inside a TensorFlow graph.

    [CLS] context [SEP] question and choice [SEP] padding

There is one such sequence for each choice, the same as those of `race.task.option_sequences`.

Letters: B batch size, C choices, T tokens of a text (ragged), S sequence length.
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.serving.graph_tokenizer import GraphTokenizer, keep

BLANK = "_"
SPECIAL_TOKENS = 3


def pack(
    tokenizer: GraphTokenizer,
    contexts: tf.Tensor,
    questions: tf.Tensor,
    choices: tf.Tensor,
    max_seq_length: int,
    max_qa_length: int,
) -> dict[str, tf.Tensor]:
    """Returns the model's input for questions with choices.

    Args:
        tokenizer: the tokenizer of the model.
        contexts: string [B].
        questions: string [B]. The choice replaces "_"; without "_", it is appended.
        choices: string [B, C], "" where a question has fewer choices.
        max_seq_length: maximum number of tokens in a sequence; contexts are truncated at the end.
        max_qa_length: maximum number of tokens in question and choice together; the last ones are
            kept.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, C, S]. For choices that are "", the
        masks are 0 and the ids are padding.
    """
    shape = tf.shape(choices)
    flat = tf.reshape(choices, [-1])  # [B·C]
    rows = tf.repeat(tf.range(shape[0]), shape[1])  # [B·C]
    context = tf.gather(tokenizer.tokenize(contexts), rows)  # [B·C, T]
    question = tf.gather(tokenizer.preprocess(questions), rows)  # [B·C]
    # Question and choice are normalized separately; their combination is not normalized again.
    ending = tokenizer.tokenize_preprocessed(fill_in(question, tokenizer.preprocess(flat)))
    ending = _keep_last(ending, max_qa_length)  # [B·C, T]
    room = max_seq_length - SPECIAL_TOKENS - ending.row_lengths()  # [B·C]
    exists = tf.not_equal(flat, "")
    context = keep(context, tf.minimum(context.row_lengths(), room))
    first = tf.concat([_fill(shape, tokenizer.cls_id), context, _fill(shape, tokenizer.sep_id)], 1)
    second = tf.concat([ending, _fill(shape, tokenizer.sep_id)], 1)
    ids = _only(tf.concat([first, second], 1), exists)  # [B·C, T]
    segments = _only(tf.concat([tf.zeros_like(first), tf.ones_like(second)], 1), exists)
    # At least one position, for batches without choices.
    length = tf.maximum(tf.reduce_max(tf.concat([ids.row_lengths(), [1]], 0)), 1)

    def dense(x: tf.RaggedTensor, padding: int) -> tf.Tensor:
        padded = x.to_tensor(padding, shape=[None, None])
        missing = length - tf.shape(padded, tf.int64)[1]
        padded = tf.pad(padded, [[0, 0], [0, missing]], constant_values=padding)
        return tf.reshape(padded, tf.concat([shape, [tf.cast(length, tf.int32)]], 0))  # [B, C, S]

    return {
        "input_ids": dense(ids, tokenizer.pad_id),
        "input_mask": dense(tf.ones_like(ids), 0),
        "segment_ids": dense(segments, 0),
    }


def fill_in(questions: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
    """Returns questions [N] with "_" replaced by choices [N]; without "_", appends the choice."""
    parts = tf.strings.split(questions, BLANK)  # [N, parts]
    is_last = tf.ragged.range(parts.row_lengths()) == tf.expand_dims(parts.row_lengths() - 1, 1)
    own_choice = tf.gather(choices, parts.value_rowids())
    fillings = tf.where(is_last.flat_values, "", own_choice)
    filled = parts.with_flat_values(tf.strings.join([parts.flat_values, fillings]))
    filled = tf.strings.reduce_join(filled, axis=1)  # [N]
    return tf.where(parts.row_lengths() > 1, filled, tf.strings.join([questions, " ", choices]))


def _keep_last(tokens: tf.RaggedTensor, count: int) -> tf.RaggedTensor:
    """Returns the last `count` tokens of each row of `tokens` [N, T]."""
    first = tf.maximum(tokens.row_lengths() - count, 0)
    positions = tf.ragged.range(tokens.row_lengths())  # [N, T]
    return tf.ragged.boolean_mask(tokens, positions >= tf.expand_dims(first, 1))


def _fill(shape: tf.Tensor, token_id: int) -> tf.Tensor:
    return tf.fill([shape[0] * shape[1], 1], token_id)


def _only(tokens: tf.RaggedTensor, exists: tf.Tensor) -> tf.RaggedTensor:
    """Returns tokens [N, T], with no tokens in rows where `exists` [N] is False."""
    return keep(tokens, tf.where(exists, tokens.row_lengths(), 0))
