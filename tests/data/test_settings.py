"""Settings of the program that creates pre-training data: ranges, and albert_zh's defaults."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

from albert_tf.data.settings import Settings

PATHS = {"input_file": "text.txt", "output_file": "records"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_seq_length": 4}, "max_seq_length=4: expected 5 or more, for 3 special tokens"),
        ({"dupe_factor": 0}, "dupe_factor=0: expected 1 or more"),
        ({"short_seq_prob": 1.5}, "short_seq_prob=1.5: expected 1 or less"),
        ({"random_seed": -1}, "random_seed=-1: expected 0 or more"),
        ({"masked_lm_prob": 1.0}, "masked_lm_prob=1.0: expected less than 1"),
        ({"masked_lm_prob": -0.1}, "masked_lm_prob=-0.1: expected 0 or more"),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq=0: expected 1 or more"),
        ({"ngram": 0}, "ngram=0: expected 1 or more"),
        ({"ngram": 10**6}, "ngram=1000000: expected 100 or less"),
        ({"max_seq_length": 10**11}, "max_seq_length=100000000000: expected 65536 or less"),
        ({"max_predictions_per_seq": 10**11}, "max_predictions_per_seq=10+: expected 65536 or"),
        ({"chunk_megabytes": 1e300}, r"chunk_megabytes=1e\+300: expected 1000000.0 or less"),
        ({"chunk_megabytes": 0}, "chunk_megabytes=0: expected 1e-06 or more"),
        ({"shuffle_megabytes": 0}, "shuffle_megabytes=0: expected"),
        ({"num_workers": -1}, "num_workers=-1: expected 1 or more"),
        ({"input_format": "csv"}, "input_format='csv': expected one of 'sentences', 'documents'"),
        ({"albert_zh_compat": True}, "cannot be combined with ngram above 1,"),
        ({"albert_zh_compat": True, "ngram": 1, "do_permutation": True}, "with do_permutation"),
        (
            {"albert_zh_compat": True, "ngram": 1, "random_next_sentence": True},
            "with sentence_objective=nsp",
        ),
    ],
)
def test_invalid_settings_are_rejected(values, message):
    with pytest.raises(ValueError, match=message):
        Settings(**PATHS, **values)


def test_googles_flag_for_next_sentence_prediction_is_another_name_of_nsp():
    assert Settings(**PATHS).objective.abbreviation == "sop"
    for values in ({}, {"sentence_objective": "nsp"}):
        assert Settings(**PATHS, random_next_sentence=True, **values).objective.name == (
            "next_sentence"
        )
    with pytest.raises(ValueError, match="'sop' contradicts random_next_sentence, which is Google"):
        Settings(**PATHS, random_next_sentence=True, sentence_objective="sop")


def test_without_sentencex_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    Settings(**PATHS)
    with pytest.raises(ValueError, match=r"requires sentencex: .*\[sentences\]"):
        Settings(**PATHS, split_sentences=True)


def changes(**values):
    """Returns the values that `make` sets differently from the defaults."""
    made, default = Settings.make(**PATHS, **values), dataclasses.asdict(Settings(**PATHS))
    return {
        name: value for name, value in dataclasses.asdict(made).items() if default[name] != value
    }


def test_without_albert_zh_compat_the_defaults_are_googles():
    assert changes() == {}
    assert changes(ngram=2) == {"ngram": 2}


def test_albert_zh_compat_sets_the_defaults_of_albert_zh():
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


def test_non_chinese_turns_off_chinese_words():
    found = changes(albert_zh_compat=True, non_chinese=True)
    assert found["non_chinese"]
    assert "segment_chinese_words" not in found
    assert "segment_chinese_words" not in changes(segment_chinese_words=True, non_chinese=True)


def test_non_chinese_alone_warns_that_it_has_no_effect(caplog):
    assert changes(non_chinese=True) == {"non_chinese": True}
    assert "--non_chinese has no effect" in caplog.text
    caplog.clear()
    changes(segment_chinese_words=True, non_chinese=True)
    assert caplog.text == ""


def test_sizes_are_converted_to_bytes():
    settings = Settings(**PATHS, chunk_megabytes=0.5, shuffle_megabytes=2)
    assert (settings.chunk_bytes, settings.shuffle_bytes) == (1 << 19, 1 << 21)
