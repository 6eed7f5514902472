"""Turns documents into pre-training instances: `[CLS] A [SEP] B [SEP]`, truncated and masked.

`instance_format` selects other instances, among them `[CLS] A [SEP]`, by which RoBERTa was chosen.

The algorithm is that of Google's `create_instances_from_document`, vectorized with NumPy: a segment
pair is stored as four token offsets instead of two lists of tokens, and all instances of a batch
are assembled and masked (`masking`) together.

Shapes: N instances, S sequence length.
Source: ALBERT (arXiv 1909.11942), section 3.1, for sentence-order prediction; RoBERTa (arXiv
1907.11692), section 4.2, for the instance formats.
"""

from __future__ import annotations

import functools
import itertools
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.documents import Documents
from albert_tf.data.masking import mask_batch, num_to_predict
from albert_tf.data.random_streams import RandomStream
from albert_tf.data.settings import (
    FULL_SENTENCES,
    MIN_TARGET,
    SEGMENT_PAIR,
    SENTENCE_PAIR,
    InstanceSettings,
)
from albert_tf.data.tf_example import Features
from albert_tf.model.tokenization import Tokenizer

BATCH_SIZE = 512  # instances built at once: small enough to fit in the CPU cache
DRAWS_FOR_ANOTHER_DOCUMENT = 10  # then the same document is used, as in Google's program

# Mixed into the seed, so that masking has a random stream separate from those of other modules.
# Changing this number, the order of the random draws or BATCH_SIZE would change every record.
_MASKING = 11

# A segment pair: start and end offset of A, start and end offset of B, label. B is empty in formats
# without pairs.
InstanceRow = tuple[int, int, int, int, int]


def _pairs_of_document(
    documents: Documents, document: int, settings: InstanceSettings, rng: random.Random
) -> Iterator[InstanceRow]:
    """Yields the segment pairs of one pass over one document.

    Sentences are collected until they reach the target length, and split at a random sentence
    boundary into segments A and B, of which the sentence objective makes a pair and its label. A
    single sentence cannot be split: it becomes A, and there is no B.
    """
    make_pair = settings.objective.make_pair
    starts = documents.sentence_starts
    sentence, end = documents.document_starts[document : document + 2]
    target = max_tokens = settings.max_seq_length - settings.num_special_tokens
    if rng.random() < settings.short_seq_prob:
        target = rng.randint(MIN_TARGET, max_tokens)
    while sentence < end:
        # `last` is one past the sentence that reaches the target, or the end of the document.
        last = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
        if settings.albert_zh_compat and last - sentence == 1:
            last += 1
            if last > end:
                return
        split = sentence + (rng.randrange(1, last - sentence) if last - sentence > 1 else 1)
        a = starts[sentence], starts[split]
        b = (starts[split], starts[last]) if split < last else None
        rest = target - (a[1] - a[0])
        random_segment = functools.partial(_random_segment, documents, document, rest, rng)
        first, second, label = make_pair(a, b, rng, random_segment)
        yield (*first, *second, label)
        # Where a random segment replaces B, the next pair starts with the sentences of B. Compared
        # by identity, because a random segment may be equal to B if there is a single document.
        sentence = last if first is b or second is b else split


def _sentence_pairs_of_document(
    documents: Documents, document: int, settings: InstanceSettings, rng: random.Random
) -> Iterator[InstanceRow]:
    """Yields pairs of single sentences, of which the sentence objective makes pairs and labels."""
    starts = documents.sentence_starts
    sentence, end = documents.document_starts[document : document + 2]
    while sentence < end:
        a = starts[sentence], starts[sentence + 1]
        b = (starts[sentence + 1], starts[sentence + 2]) if sentence + 1 < end else None
        random_sentence = functools.partial(_random_segment, documents, document, 1, rng)
        first, second, label = settings.objective.make_pair(a, b, rng, random_sentence)
        yield (*first, *second, label)
        sentence += 2 if first is b or second is b else 1


def _with_separators(documents: Documents, sep_id: int) -> Documents:
    """Returns one document of all sentences, with [SEP] between the documents."""
    firsts = documents.document_starts[1:-1]  # the first sentences of all documents but the first
    at = [documents.sentence_starts[first] for first in firsts]
    added = np.zeros(len(documents.sentence_starts), np.int64)
    added[firsts] = 1
    before = added.cumsum()  # number of separators before each sentence, and in all
    labels = documents.labels
    return Documents(
        ids=np.insert(documents.ids, at, sep_id),
        word_starts=np.insert(documents.word_starts, at, True),
        sentence_starts=(documents.sentence_starts + before).tolist(),
        sentence_ends=(documents.sentence_ends + before[:-1]).tolist(),
        document_starts=[0, documents.document_starts[-1]],
        labels=None if labels is None else np.insert(labels, at, sep_id),
    )


def _sentences_that_fit(
    documents: Documents, document: int, settings: InstanceSettings
) -> Iterator[InstanceRow]:
    """Yields as many consecutive sentences as fit, at least one, as A; B is empty.

    A sentence that is longer than a sequence is truncated later.
    """
    max_tokens = settings.max_seq_length - settings.num_special_tokens
    sentence, end = documents.document_starts[document : document + 2]
    while sentence < end:
        begin = documents.sentence_starts[sentence]
        fitting = bisect_right(documents.sentence_ends, begin + max_tokens, sentence, end)
        sentence = max(sentence + 1, fitting)
        stop = documents.sentence_ends[sentence - 1]
        yield begin, stop, stop, stop, 0


def _random_segment(
    documents: Documents, document: int, target: int, rng: random.Random
) -> tuple[int, int]:
    """Draws a segment of about `target` tokens from a random other document.

    Returns:
        The token offsets at which the segment starts and ends.
    """
    starts = documents.sentence_starts
    for _ in range(DRAWS_FOR_ANOTHER_DOCUMENT):
        other = rng.randrange(documents.num_documents)
        if other != document:
            break
    begin, end = documents.document_starts[other : other + 2]
    sentence = rng.randrange(begin, end)
    last = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
    return starts[sentence], starts[last]


def _truncate(
    pairs: NDArray[np.int64], max_tokens: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Truncates segment pairs to `max_tokens` tokens.

    Google's program removes one token at a time from the longer segment (from B if both have the
    same length), at the front or at the back with equal probability. The number of tokens that each
    segment loses is therefore fixed, and the number lost at the front is binomially distributed.

    Args:
        pairs: int64 [N, 5]; see `InstanceRow`.
        max_tokens: maximum number of tokens of A and B together.
        rng: random generator.

    Returns:
        Start and length of A, start and length of B; int64 [N] each.
    """
    begin_a, begin_b = pairs[:, 0], pairs[:, 2]
    length_a, length_b = pairs[:, 1] - begin_a, pairs[:, 3] - begin_b
    excess = np.maximum(length_a + length_b - max_tokens, 0)
    longer_by = length_a - length_b
    alone_a = np.minimum(excess, np.maximum(longer_by, 0))
    alone_b = np.minimum(excess, np.maximum(-longer_by, 0))
    rest = excess - alone_a - alone_b  # removed alternately from B and A, starting with B
    lost_a, lost_b = alone_a + rest // 2, alone_b + (rest + 1) // 2
    front_a, front_b = rng.binomial(lost_a, 0.5), rng.binomial(lost_b, 0.5)
    return begin_a + front_a, length_a - lost_a, begin_b + front_b, length_b - lost_b


def _build_batch(
    documents: Documents,
    pairs: list[InstanceRow],
    settings: InstanceSettings,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> Features:
    """Assembles and masks one instance for each pair; returns feature name → array [N, width]."""
    seq_length = settings.max_seq_length
    table = np.array(pairs, np.int64)  # [N, 5]
    begin_a, length_a, begin_b, length_b = (
        column[:, None]  # [N, 1]
        for column in _truncate(table, seq_length - settings.num_special_tokens, rng)
    )
    # Without pairs, the middle separator is the last one.
    middle, length = length_a + 1, length_a + length_b + settings.num_special_tokens
    column = np.arange(seq_length)
    in_first = column <= middle  # [N, S]
    input_mask = column < length  # [N, S]
    source = np.where(in_first, begin_a - 1, begin_b - middle - 1) + column  # [N, S]
    input_ids = documents.ids.take(source, mode="clip")
    word_starts = documents.word_starts.take(source, mode="clip")
    input_ids[:, 0] = tokenizer.cls_id
    np.put_along_axis(input_ids, np.hstack([middle, length - 1]), tokenizer.sep_id, axis=1)
    input_ids *= input_mask
    # Compared by id, as in Google's program, so that a literal "[SEP]" in the text is not masked.
    is_special = (input_ids == tokenizer.cls_id) | (input_ids == tokenizer.sep_id)
    maskable = input_mask & ~is_special
    masked = mask_batch(
        input_ids,
        word_starts,
        maskable,
        num_to_predict(length[:, 0], settings),
        settings,
        tokenizer.mask_id,
        tokenizer.vocab_size,
        RandomStream(rng),
        None if documents.labels is None else documents.labels.take(source, mode="clip"),
    )
    return masked | {
        "input_mask": input_mask.astype(np.uint8),
        "segment_ids": (input_mask & ~in_first).astype(np.uint8),
        "token_boundary": (input_mask & (word_starts | is_special)).astype(np.uint8),
        "next_sentence_labels": table[:, 4:].astype(np.uint8),
    }


def create_batches(
    documents: Documents,
    settings: InstanceSettings,
    tokenizer: Tokenizer,
    position: tuple[int, int],
) -> Iterator[Features]:
    """Yields the pre-training instances of `dupe_factor` passes over the documents of a chunk.

    Args:
        documents: the documents. Random second segments are drawn from them as well.
        settings: how instances are built and masked.
        tokenizer: supplies the special token ids and the vocabulary size.
        position: file number and offset of the chunk; part of the random seed.

    Yields:
        Feature name → array [N, width], where N is BATCH_SIZE in every batch but the last.
    """
    # Pairs are drawn one at a time by `random`; everything else in arrays by NumPy.
    number, offset = position
    walk_rng = random.Random(f"{settings.random_seed} {number} {offset}")
    rng = np.random.default_rng([settings.random_seed, number, offset, _MASKING])
    if settings.instance_format == FULL_SENTENCES:
        documents = _with_separators(documents, tokenizer.sep_id)
    rows = (
        row
        for _ in range(settings.dupe_factor)
        for document in range(documents.num_documents)
        for row in _rows_of_document(documents, document, settings, walk_rng)
    )
    while some := list(itertools.islice(rows, BATCH_SIZE)):
        yield _build_batch(documents, some, settings, tokenizer, rng)


def _rows_of_document(
    documents: Documents, document: int, settings: InstanceSettings, rng: random.Random
) -> Iterator[InstanceRow]:
    """Yields the instances of one pass over one document, as token offsets."""
    if settings.instance_format == SEGMENT_PAIR:
        return _pairs_of_document(documents, document, settings, rng)
    if settings.instance_format == SENTENCE_PAIR:
        return _sentence_pairs_of_document(documents, document, settings, rng)
    return _sentences_that_fit(documents, document, settings)
