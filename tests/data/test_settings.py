"""Settings of the program that creates pre-training data, and of what other programs read."""

from __future__ import annotations

import pytest

from albert_tf.data.settings import RecordSettings, VocabularySettings


def test_lengths_are_those_of_googles_programs():
    records = RecordSettings(input_file="text.txt")
    assert (records.max_seq_length, records.max_predictions_per_seq) == (512, 20)
    with pytest.raises(ValueError, match="max_predictions_per_seq=0: expected 1 or more"):
        RecordSettings(input_file="text.txt", max_predictions_per_seq=0)


def test_a_vocabulary_is_optional():
    assert VocabularySettings() == VocabularySettings(spm_model_file=None, do_lower_case=True)
