"""The step from text to encoded instances, without the programs that use it."""

from __future__ import annotations

import collections
import dataclasses
import importlib.util

import numpy as np
import pytest

from albert_tf.data import corpus
from albert_tf.data.encoding import load_tokenizer, load_word_marker, make_chunk_encoder
from albert_tf.data.settings import EncodingSettings
from albert_tf.data.tfrecord import FOOTER_BYTES, HEADER_BYTES, decode_example

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HAN = "中华人民共和国的研究生命起源"
WORDS = {
    "dupe_factor": 9,
    "segment_chinese_words": True,
    "max_predictions_per_seq": 20,
    "masked_lm_prob": 0.5,
}


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "vocab.txt"
    pieces = [*PIECES, *HAN, *("##" + char for char in HAN)]
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return EncodingSettings(
        vocab_file=str(path), max_seq_length=37, dupe_factor=3, max_predictions_per_seq=7
    )


@pytest.fixture
def chunk(tmp_path):
    path = tmp_path / "text.txt"
    lines = [
        "中华人民共和国的人民",
        "研究生命的起源",
        "研究生的研究",
        "",
        "人民的生命",
        "中国人民",
        "",
    ]
    path.write_text("\n".join(lines * 7), encoding="utf-8")
    (found,) = corpus.read_chunks([str(path)], 1 << 20)
    return found


def encode(settings, chunk, num_outputs=3):
    batches = list(make_chunk_encoder(settings, num_outputs)(chunk))
    counts = collections.Counter()
    for batch in batches:
        counts.update(batch.counts)
    records = [record for batch in batches for record in batch.records]
    slots = np.concatenate([batch.slots for batch in batches])
    examples = [decode_example(record[HEADER_BYTES:-FOOTER_BYTES]) for record in records]
    return examples, slots, counts


def test_a_chunk_is_encoded_as_records_slots_and_counts(settings, chunk):
    examples, slots, counts = encode(settings, chunk)
    assert len(examples) == len(slots) == counts["instances"] > 40
    assert counts["documents"] == 14
    assert counts["sentences"] == 35
    assert counts["tokens"] == 7 * (10 + 7 + 6 + 5 + 4)
    assert (counts["unknown"], counts["long_sentences"]) == (0, 0)
    assert counts["positions"] == sum(int(example["input_mask"].sum()) for example in examples)
    outputs = np.bincount(slots // (4096 // 3))
    assert len(outputs) == 3
    assert outputs.max() - outputs.min() <= 1


def test_unknown_tokens_and_sentences_longer_than_a_sequence_are_counted(settings, tmp_path):
    path = tmp_path / "odd.txt"
    path.write_text(f"{HAN}命\n{HAN}命江\nboat 中\n\n人\n", encoding="utf-8")
    (odd,) = corpus.read_chunks([str(path)], 1 << 20)
    _, _, counts = encode(dataclasses.replace(settings, max_seq_length=len(HAN) + 4), odd)
    assert (counts["unknown"], counts["long_sentences"]) == (2, 1)


def test_encoding_a_chunk_is_deterministic(settings, chunk):
    make = make_chunk_encoder(settings, 3)
    first, second = list(make(chunk)), list(make(chunk))
    assert [batch.records for batch in first] == [batch.records for batch in second]
    for position in ((0, 1), (1, 0)):
        other = corpus.Chunk(position, chunk.parts, 0)
        assert [batch.records for batch in make(other)] != [batch.records for batch in first]


def test_no_words_are_marked_by_default(settings):
    assert load_word_marker(settings, load_tokenizer(settings)) is None


def needs_jieba():
    if not importlib.util.find_spec("jieba"):
        pytest.skip("jieba is not installed")


def masked_positions(example):
    used = example["masked_lm_weights"] > 0
    return set(example["masked_lm_positions"][used].tolist())


def test_chinese_words_are_masked_as_a_whole(settings, chunk):
    needs_jieba()
    settings = dataclasses.replace(settings, **WORDS)
    examples, _, _ = encode(settings, chunk)
    ids_of = {piece: piece_id for piece_id, piece in enumerate([*PIECES, *HAN])}
    long_words = 0
    for example in examples:
        masked = masked_positions(example)
        original = example["input_ids"].copy()
        count = len(masked)
        original[example["masked_lm_positions"][:count]] = example["masked_lm_ids"][:count]
        assert original.max() < len(PIECES) + len(HAN)  # plain ids are predicted
        word = [ids_of[char] for char in "中华人民共和国"]
        for at in range(len(original) - 7):
            if original[at : at + 7].tolist() == word:
                assert len(masked & set(range(at, at + 7))) in (0, 7)
                assert example["token_boundary"][at : at + 7].tolist() == [1] + [0] * 6
                long_words += at in masked
    assert long_words > 5


def test_albert_zh_predicts_continuation_pieces_inside_words(settings, chunk):
    needs_jieba()
    settings = dataclasses.replace(settings, **WORDS, albert_zh_compat=True, ngram=1)
    examples, _, _ = encode(settings, chunk)
    first_twin = len(PIECES) + len(HAN)
    kept = twins = 0
    for example in examples:
        count = int(example["masked_lm_weights"].sum())
        positions = example["masked_lm_positions"][:count]
        labels = example["masked_lm_ids"][:count]
        boundary = example["token_boundary"][positions]
        np.testing.assert_array_equal(labels >= first_twin, boundary == 0)
        twins += int((labels >= first_twin).sum())
        unmasked = np.setdiff1d(np.flatnonzero(example["input_mask"]), positions)
        assert example["input_ids"][unmasked].max() < first_twin  # the inputs are plain characters
        kept += len(unmasked)
    assert twins > 100
    assert kept > 100
