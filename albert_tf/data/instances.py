"""From lines of text to pre-training instances: tokenization, segment pairs, truncation, layout.

`tokenize_documents` and then `create_batches` turn a chunk into batches of instances. Like Google's
`create_instances_from_document`, but a segment pair is four token offsets instead of two lists of
tokens, and the instances of a batch are laid out and masked (`masking`) together.

Shapes: N instances, S sequence length, T tokens of the chunk, V vocabulary size.
Source: ALBERT (arXiv 1909.11942), section 3.1, for the sentence order labels.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.masking import mask_batch, num_to_predict, starts_word
from albert_tf.data.settings import MIN_TARGET, SPECIAL_TOKENS_PER_PAIR, InstanceSettings
from albert_tf.tokenization import FullTokenizer

BATCH_SIZE = 512  # instances laid out and masked at once: they fit in the cache
LINES_AT_ONCE = 2000  # tokenized together; limits the number of Python objects in memory
DRAWS_FOR_ANOTHER_DOCUMENT = 10  # after so many the same document is taken, as in Google's program

# Part of a seed, so that no other use draws the same random numbers. Another number, another order
# of the draws or another BATCH_SIZE would be as good, but would change every record.
_MASKING = 11

# A segment pair: offsets of the begin and end of A, of the begin and end of B, and the label.
Pair = tuple[int, int, int, int, int]


class WordMarker(Protocol):
    """Finds words that the pieces of the vocabulary do not show; see `chinese_words`.

    Attributes:
        label_table: int32 [V], the id to predict for a piece inside a word; None for its own id.
    """

    label_table: NDArray[np.int32] | None

    def continues_word(self, lines: list[str], encoded: list[list[int]]) -> NDArray[np.bool_]:
        """Returns which tokens continue a word: bool [tokens of all lines, concatenated]."""


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenized documents, all in one array.

    Attributes:
        ids: int32 [T].
        word_starts: bool [T], whether the piece starts a word.
        sentence_starts: token offset of each sentence, and T at the end. No sentence is empty.
        document_starts: sentence index of each document, and their number at the end. No document
            is empty.
        labels: int32 [T], the ids to predict; None for `ids`.
    """

    ids: NDArray[np.int32]
    word_starts: NDArray[np.bool_]
    sentence_starts: list[int]
    document_starts: list[int]
    labels: NDArray[np.int32] | None = None

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return len(self.document_starts) - 1


def _is_blank(line: str, tokenizer: FullTokenizer) -> bool:
    """Whether a line ends a document: as in Google's program, if preprocessing leaves nothing."""
    return not (tokenizer.preprocess(line) if tokenizer.is_sentencepiece else line.strip())


def tokenize_documents(
    parts: Iterable[list[str]],
    tokenizer: FullTokenizer,
    word_start_table: NDArray[np.bool_],
    word_marker: WordMarker | None = None,
) -> Documents:
    """Tokenizes lines, a sentence each, with blank lines between documents.

    Lines without tokens are dropped, and so are documents without lines.

    Args:
        parts: lists of lines; each begins a new document.
        tokenizer: the tokenizer.
        word_start_table: bool [V], which pieces start a word.
        word_marker: finds tokens that continue a word although their piece starts one.
    """
    ids: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    word_starts: list[NDArray[np.bool_]] = [np.zeros(0, bool)]
    lengths: list[int] = []
    document_starts = [0]
    for lines in parts:
        for first in range(0, len(lines), LINES_AT_ONCE):
            some = lines[first : first + LINES_AT_ONCE]
            encoded = tokenizer.encode_batch(some)
            ids.append(np.fromiter(itertools.chain.from_iterable(encoded), np.int32))
            word_starts.append(word_start_table[ids[-1]])
            if tokenizer.is_sentencepiece:
                _correct_unknown_pieces(ids[-1], word_starts[-1], some, encoded, tokenizer)
            if word_marker:
                word_starts[-1] &= ~word_marker.continues_word(some, encoded)
            for line, pieces in zip(some, encoded, strict=True):
                if pieces:
                    lengths.append(len(pieces))
                elif _is_blank(line, tokenizer):
                    document_starts.append(len(lengths))
        document_starts.append(len(lengths))
    all_ids, all_starts = np.concatenate(ids), np.concatenate(word_starts)
    table = word_marker.label_table if word_marker else None
    return Documents(
        ids=all_ids,
        word_starts=all_starts,
        sentence_starts=[0, *itertools.accumulate(lengths)],
        document_starts=sorted(set(document_starts)),
        labels=None if table is None else np.where(all_starts, all_ids, table[all_ids]),
    )


def _correct_unknown_pieces(
    ids: NDArray[np.int32],
    word_starts: NDArray[np.bool_],
    lines: list[str],
    encoded: list[list[int]],
    tokenizer: FullTokenizer,
) -> None:
    """Corrects `word_starts` in place for unknown pieces: their spelling decides, not the id."""
    unknown = np.flatnonzero(ids == tokenizer.unk_id)
    ends = np.cumsum([len(pieces) for pieces in encoded])
    for index in np.unique(np.searchsorted(ends, unknown, side="right")).tolist():
        pieces = tokenizer.tokenize(lines[index])
        word_starts[ends[index] - len(pieces) : ends[index]] = list(map(starts_word, pieces))


def _pairs_of_document(
    documents: Documents, document: int, settings: InstanceSettings, rng: random.Random
) -> Iterator[Pair]:
    """Yields the segment pairs of one pass over one document."""
    starts = documents.sentence_starts
    sentence, end = documents.document_starts[document : document + 2]
    target = max_tokens = settings.max_seq_length - SPECIAL_TOKENS_PER_PAIR
    if rng.random() < settings.short_seq_prob:
        target = rng.randint(MIN_TARGET, max_tokens)
    while sentence < end:
        # Sentences up to the one that reaches the target, or to the end of the document.
        last = bisect_left(starts, starts[sentence] + target, sentence + 1, end)
        if settings.albert_zh_compat and last - sentence == 1:
            last += 1
            if last > end:
                return
        split = sentence + (rng.randrange(1, last - sentence) if last - sentence > 1 else 1)
        a = starts[sentence], starts[split]
        if split == last or (settings.random_next_sentence and rng.random() < 0.5):
            b = _random_segment(documents, document, target - (a[1] - a[0]), rng)
            yield (*a, *b, 1)
            sentence = split  # what came after A is used for the next pair
            continue
        b = starts[split], starts[last]
        if not settings.random_next_sentence and rng.random() < 0.5:
            yield (*b, *a, 1)
        else:
            yield (*a, *b, 0)
        sentence = last


def _random_segment(
    documents: Documents, document: int, target: int, rng: random.Random
) -> tuple[int, int]:
    """Begin and end of sentences of another document, from a random one to `target` tokens."""
    starts = documents.sentence_starts
    for _ in range(DRAWS_FOR_ANOTHER_DOCUMENT):
        other = rng.randrange(documents.num_documents)
        if other != document:
            break
    begin, end = documents.document_starts[other : other + 2]
    sentence = rng.randrange(begin, end)
    last = bisect_left(starts, starts[sentence] + max(1, target), sentence + 1, end)
    return starts[sentence], starts[last]


def _truncate(
    pairs: NDArray[np.int64], max_tokens: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Truncates the pairs to `max_tokens`: begin and length of A, begin and length of B, [N] each.

    Google's program removes one token at a time from the longer segment, from B if both are equally
    long, at the front or the back with equal probability. So the number that each segment loses is
    determined, and the number that it loses at the front is binomially distributed.
    """
    begin_a, begin_b = pairs[:, 0], pairs[:, 2]
    length_a, length_b = pairs[:, 1] - begin_a, pairs[:, 3] - begin_b
    excess = np.maximum(length_a + length_b - max_tokens, 0)
    longer_by = length_a - length_b
    alone_a = np.minimum(excess, np.maximum(longer_by, 0))
    alone_b = np.minimum(excess, np.maximum(-longer_by, 0))
    rest = excess - alone_a - alone_b  # in turns, B first
    lost_a, lost_b = alone_a + rest // 2, alone_b + (rest + 1) // 2
    front_a, front_b = rng.binomial(lost_a, 0.5), rng.binomial(lost_b, 0.5)
    return begin_a + front_a, length_a - lost_a, begin_b + front_b, length_b - lost_b


def _build_batch(
    documents: Documents,
    pairs: list[Pair],
    settings: InstanceSettings,
    tokenizer: FullTokenizer,
    rng: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """Lays out and masks the instances of some pairs: feature name → array [N, …]."""
    seq_length = settings.max_seq_length
    table = np.array(pairs, np.int64)  # [N, 5]
    begin_a, length_a, begin_b, length_b = (
        column[:, None]  # [N, 1]
        for column in _truncate(table, seq_length - SPECIAL_TOKENS_PER_PAIR, rng)
    )
    middle, length = length_a + 1, length_a + length_b + SPECIAL_TOKENS_PER_PAIR
    column = np.arange(seq_length)
    in_first = column <= middle  # [N, S]
    input_mask = column < length  # [N, S]
    source = np.where(in_first, begin_a - 1, begin_b - middle - 1) + column  # [N, S]
    input_ids = documents.ids.take(source, mode="clip")
    word_starts = documents.word_starts.take(source, mode="clip")
    input_ids[:, 0] = tokenizer.cls_id
    np.put_along_axis(input_ids, np.hstack([middle, length - 1]), tokenizer.sep_id, axis=1)
    input_ids *= input_mask
    # By their ids, as in Google's program: a literal [SEP] in the text is never masked either.
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
        rng,
        None if documents.labels is None else documents.labels.take(source, mode="clip"),
    )
    return masked | {
        "input_mask": input_mask.astype(np.uint8),
        "segment_ids": (input_mask & ~in_first).astype(np.uint8),
        "token_boundary": (input_mask & (word_starts | is_special)).astype(np.uint8),
        "next_sentence_labels": table[:, 4:].astype(np.uint8),
    }


def create_batches(
    documents: Documents, settings: InstanceSettings, tokenizer: FullTokenizer, chunk_index: int
) -> Iterator[dict[str, NDArray[Any]]]:
    """Makes the instances of all passes over the documents of a chunk.

    Args:
        documents: the documents. Random second segments are taken from them.
        settings: how to make instances.
        tokenizer: has the special ids and the size of the vocabulary.
        chunk_index: part of the seed.

    Yields:
        Feature name → array [N, width], where N is BATCH_SIZE in all batches but the last.
    """
    # One generator for the pairs, one for everything else, which draws many numbers at once.
    walk_rng = random.Random(f"{settings.random_seed} {chunk_index}")
    rng = np.random.default_rng([settings.random_seed, chunk_index, _MASKING])
    pairs = (
        pair
        for _ in range(settings.dupe_factor)
        for document in range(documents.num_documents)
        for pair in _pairs_of_document(documents, document, settings, walk_rng)
    )
    while some := list(itertools.islice(pairs, BATCH_SIZE)):
        yield _build_batch(documents, some, settings, tokenizer, rng)
