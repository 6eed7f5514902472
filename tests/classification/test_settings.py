"""Settings of the classification program."""

import pytest

from albert_tf import classification
from albert_tf.classification.settings import CustomDataSettings
from albert_tf.settings import describe


def test_the_settings_are_public_and_name_their_task():
    settings = classification.Settings(task_name="lcqmc", data_dir="data", output_dir="out")
    assert settings.BATCHES_TO_SORT == 32
    assert not settings.asks_for_something


def test_help_texts_mention_custom_tasks():
    fields = {field.name: field for field in describe(CustomDataSettings)}
    assert set(fields) == {
        *("text_a_column", "text_b_column", "label_column"),
        *("has_header", "is_regression", "is_multi_label", "labels"),
    }
    assert all("custom task" in field.help for field in fields.values())


def test_a_tflite_file_requires_export_dir():
    settings = classification.Settings(
        task_name="lcqmc", data_dir="data", output_dir="out", tflite_quantization="int8"
    )
    with pytest.raises(ValueError, match=r"tflite_quantization=int8 .* --export_dir"):
        settings.check_paths()
