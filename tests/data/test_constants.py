"""Constants of data creation that records, vocabularies or warnings depend on.

Another value would change what every user gets, or what other tests cannot notice with small texts.
"""

from __future__ import annotations

import pytest

from albert_tf.data import (
    chinese_words,
    instances,
    masking,
    report,
    settings,
    shuffle,
    sources,
    text_window,
    train_vocabulary,
)


@pytest.mark.parametrize(
    ("module", "values"),
    [
        # Google's create_masked_lm_predictions and create_instances_from_document.
        (masking, {"MASK_SHARE": 0.8, "KEPT_SHARE": 0.1}),
        (instances, {"DRAWS_FOR_ANOTHER_DOCUMENT": 10}),
        (settings, {"MIN_TARGET": 2, "SPECIAL_TOKENS_PER_PAIR": 3}),
        # albert_zh's get_new_segment, and the defaults of its create_pretraining_data.py.
        (chinese_words, {"LONGEST_ALBERT_ZH_WORD": 3}),
        (
            settings,
            {
                "ALBERT_ZH_DEFAULTS": {
                    "max_seq_length": 128,
                    "do_whole_word_mask": False,
                    "dupe_factor": 10,
                }
            },
        ),
        # The random numbers of records, and the order of records in the outputs.
        (instances, {"BATCH_SIZE": 512}),
        (shuffle, {"NUM_SLOTS": 4096}),
        # Where text is divided and refused: docs/differences.md, docs/notebook/clusters.md.
        (text_window, {"MIN_DOCUMENT_LIMIT": 16 * 2**20, "MAX_SENTENCE_CHARS": 1_000_000}),
        (sources, {"COMPRESSION_RATIO": 4}),
        (settings, {"MEGABYTE": 2**20, "MAX_LENGTH": 65536}),
        # Memory of a process.
        (shuffle, {"SPILL_BYTES": 32 * 2**20}),
        # When a run warns.
        (
            report,
            {
                "MAX_UNKNOWN": 0.07,
                "MAX_LONG_SENTENCES": 0.05,
                "MAX_IMBALANCE": 1 / 6,
                "MIN_LENGTH": 0.25,
            },
        ),
        # SentencePiece's results depend on the number of threads.
        (train_vocabulary, {"TRAINING_THREADS": 16, "MIN_PIECE_COUNT": 2}),
        (train_vocabulary, {"WORDPIECE_SYMBOLS": "[PAD] [UNK] [CLS] [SEP] [MASK]".split()}),
    ],
)
def test_constants_have_the_values_that_users_files_were_made_with(module, values):
    assert {name: getattr(module, name) for name in values} == values
