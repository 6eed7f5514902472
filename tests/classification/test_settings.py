"""Settings of the classification program."""

import pytest

from albert_tf import classification
from albert_tf.classification.settings import CustomDataSettings
from albert_tf.settings import fields_of


def test_help_texts_mention_custom_tasks():
    fields = {field.name: field for field in fields_of(CustomDataSettings)}
    assert set(fields) == {
        *("text_a_column", "text_b_column", "label_column"),
        *("has_header", "is_regression", "is_multi_label", "labels"),
    }
    assert all("custom task" in field.help for field in fields.values())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tflite_quantization": "int8"}, r"tflite_quantization=int8 .* --export_dir"),
        ({"task_name": "colla", "do_train": True}, "'cola'"),  # before TensorFlow is imported
    ],
)
def test_values_are_checked_with_the_paths(tmp_path, values, problem):
    data = {"task_name": "lcqmc", "data_dir": str(tmp_path), "output_dir": str(tmp_path)}
    with pytest.raises(ValueError, match=problem):
        classification.Settings(**data | values).check_paths()
