"""Settings of the data program that depend on each other, and albert_zh's defaults."""

from __future__ import annotations

import dataclasses
import math

import pytest

from albert_tf.data import inspect_records, train_vocabulary
from albert_tf.data.settings import Settings
from albert_tf.settings import fields_of

PATHS = {"input_file": "text.txt", "output_file": "records"}
FULL = {"instance_format": "full_sentences"}


@pytest.mark.parametrize(
    ("settings_class", "others", "limits"),
    [
        (
            Settings,
            PATHS,
            {
                "max_seq_length": (5, 65536),
                "masked_lm_prob": (0.0, math.nextafter(1, 0)),
                "max_predictions_per_seq": (1, 65536),
                "ngram": (1, None),
                "dupe_factor": (1, None),
                "short_seq_prob": (0.0, 1.0),
                "random_seed": (0, None),
                "num_workers": (1, None),
                "chunk_megabytes": (1e-6, None),
                "shuffle_megabytes": (1e-6, None),
                "num_logged_instances": (0, None),
            },
        ),
        (
            train_vocabulary.Settings,
            {"input_file": "a", "output_prefix": "b"},
            {
                "vocab_size": (1, None),
                "character_coverage": (0.0, 1.0),
                "input_sentence_size": (101, None),
            },
        ),
        (
            inspect_records.Settings,
            {"input_file": "a"},
            {"num_instances": (0, None), "max_records": (0, None)},
        ),
    ],
)
def test_numbers_have_these_limits_and_no_others(settings_class, others, limits):
    for name, (smallest, largest) in limits.items():
        for limit, away in ((smallest, -1), (largest, 1)):
            if limit is None:
                continue
            assert getattr(settings_class(**others, **{name: limit}), name) == limit
            beyond = limit + away if isinstance(limit, int) else limit + away * 1e-9
            with pytest.raises(ValueError, match=rf"{name}="):
                settings_class(**others, **{name: beyond})
    assert limits.keys() == {
        field.name
        for field in fields_of(settings_class)
        if (field.minimum, field.maximum) != (None, None)
    }
    assert Settings(**PATHS, **FULL, max_seq_length=4).num_special_tokens == 2


@pytest.mark.parametrize(
    ("values", "objective"),
    [
        ({}, "sop"),
        (FULL, "none"),
        ({"random_next_sentence": True}, "nsp"),
        ({"random_next_sentence": True, "sentence_objective": "sop"}, "sop"),
    ],
)
def test_the_sentence_objective_follows_from_the_format_and_from_googles_flag(values, objective):
    assert Settings(**PATHS, **values).objective.abbreviation == objective


def changes(**values):
    """Returns the values that `make` sets differently from the defaults."""
    made, default = Settings.make(**PATHS, **values), dataclasses.asdict(Settings(**PATHS))
    return {
        name: value for name, value in dataclasses.asdict(made).items() if default[name] != value
    }


def test_albert_zh_compat_sets_the_defaults_of_albert_zh():
    assert changes(ngram=2) == {"ngram": 2}
    expected = {
        "albert_zh_compat": True,
        "segment_chinese_words": True,
        "max_seq_length": 128,
        "do_whole_word_mask": False,
        "dupe_factor": 10,
        "ngram": 1,
    }
    assert changes(albert_zh_compat=True) == expected
    # Explicit values are kept, even if they equal Google's default.
    given = {"do_whole_word_mask": True, "max_seq_length": 512, "segment_chinese_words": False}
    kept = {name: value for name, value in expected.items() if name not in given}
    assert changes(albert_zh_compat=True, **given) == kept
    for values in ({}, given):
        made = Settings(**PATHS, albert_zh_compat=True, **values)
        assert made == Settings.make(**PATHS, albert_zh_compat=True, **values)
        assert dataclasses.replace(made, max_seq_length=99, ngram=3).ngram == 3


def test_non_chinese_turns_off_chinese_words():
    assert "segment_chinese_words" not in changes(albert_zh_compat=True, non_chinese=True)
    assert "segment_chinese_words" not in changes(segment_chinese_words=True, non_chinese=True)
    assert changes(non_chinese=True) == {"non_chinese": True}


def test_sizes_are_converted_to_bytes():
    settings = Settings(**PATHS, chunk_megabytes=0.5, shuffle_megabytes=2)
    assert (settings.chunk_bytes, settings.shuffle_bytes) == (1 << 19, 1 << 21)
