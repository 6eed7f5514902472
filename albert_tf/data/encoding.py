"""Encodes a chunk of text as serialized instances, each with a slot for the shuffle.

This step is shared by `create` and `beam`, which write the same records because its result depends
only on the chunk and the settings.

1. Parse the chunk into lists of sentences (`sentences`).
2. Tokenize them once (`documents`) and optionally mark Chinese words (`chinese_words`).
3. Build and mask the instances of all passes (`instances`, `masking`) and serialize them
   (`tf_example`).
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from albert_tf.data.chinese_words import AlbertZhWords, ChineseWords, WordMarker
from albert_tf.data.chunks import Chunk
from albert_tf.data.documents import tokenize_documents, word_start_table
from albert_tf.data.instances import create_batches
from albert_tf.data.sentences import sentences_of
from albert_tf.data.settings import EncodingSettings, InstanceSettings, VocabularySettings
from albert_tf.data.shuffle import EncodedBatch, draw_slots
from albert_tf.data.tf_example import Features, encode_examples
from albert_tf.model.tokenization import LostMarks, MarkRemoval, Tokenizer
from albert_tf.model.tokenization import load_tokenizer as load
from albert_tf.record_frames import frame_records

CHECKED_LINES = 1000  # of each chunk, whose words are checked for marks
_SLOTS = 1  # mixed into the seed, so that slots have a separate random stream


def load_tokenizer(settings: VocabularySettings) -> Tokenizer:
    """Returns the tokenizer that the settings describe.

    Raises:
        FileNotFoundError, ValueError: see `tokenization.load_tokenizer`.
    """
    return load(settings.vocab_file, settings.do_lower_case, settings.spm_model_file)


def load_word_marker(settings: InstanceSettings, tokenizer: Tokenizer) -> WordMarker | None:
    """Returns an object that marks Chinese words, or None if the settings do not enable it.

    Raises:
        ValueError: jieba is not installed, or the vocabulary is unsuitable.
    """
    if not settings.segment_chinese_words:
        return None
    return AlbertZhWords(tokenizer) if settings.albert_zh_compat else ChineseWords(tokenizer)


def _count(batch: Features, records: list[bytes]) -> collections.Counter[str]:
    labels = np.bincount(batch["next_sentence_labels"][:, 0], minlength=2).tolist()
    return collections.Counter(
        instances=len(records),
        positions=int(batch["input_mask"].sum()),
        predictions=int(batch["masked_lm_weights"].sum()),
        **{f"label_{label}": count for label, count in enumerate(labels) if label},
        record_bytes=sum(map(len, records)),
    )


def _keeping_first(parts: Iterable[list[str]], kept: list[str]) -> Iterator[list[str]]:
    """Yields lists of lines, and appends the first `CHECKED_LINES` of them to `kept`."""
    for lines in parts:
        kept += lines[: CHECKED_LINES - len(kept)]
        yield lines


def make_chunk_encoder(
    settings: EncodingSettings, num_outputs: int
) -> Callable[[Chunk], Iterator[EncodedBatch]]:
    """Returns a function that yields the encoded instances of a chunk, in batches.

    The first batch of a chunk has no instances, only the counts of the text.

    Args:
        settings: the vocabulary, which is loaded once, here, and how to build instances.
        num_outputs: number of record files.
    """
    tokenizer = load_tokenizer(settings)
    table = word_start_table(tokenizer.pieces, tokenizer.is_sentencepiece)
    marker = load_word_marker(settings, tokenizer)
    removal = MarkRemoval.of(tokenizer)
    longest = settings.max_seq_length - settings.num_special_tokens

    def encode(chunk: Chunk) -> Iterator[EncodedBatch]:
        first_lines: list[str] = []
        sentences = _keeping_first(sentences_of(chunk.parts, settings), first_lines)
        documents = tokenize_documents(sentences, tokenizer, table, marker)
        lost = removal.count(first_lines) if removal is not None else LostMarks()
        counts: collections.Counter[str] = collections.Counter(
            instances=0,
            documents=documents.num_documents,
            sentences=len(documents.sentence_starts) - 1,
            tokens=len(documents.ids),
            unknown=int((documents.ids == tokenizer.unk_id).sum()),
            long_sentences=int((np.diff(documents.sentence_starts) > longest).sum()),
            checked_words=lost.words,
            changed_words=lost.changed,
        )
        yield EncodedBatch([], np.zeros(0, np.int64), counts)
        rng = np.random.default_rng([settings.random_seed, *chunk.position, _SLOTS])
        made = 0
        for batch in create_batches(documents, settings, tokenizer, chunk.position):
            encoded = frame_records(encode_examples(batch))
            slots = draw_slots(len(encoded), made, num_outputs, rng)
            made += len(encoded)
            yield EncodedBatch(encoded, slots, _count(batch, encoded))

    return encode
