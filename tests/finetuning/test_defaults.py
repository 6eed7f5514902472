"""Values of the fine-tuning settings that nobody passes: each change is to be made here as well."""

import dataclasses

import pytest

from albert_tf import classification, race, squad, token_classification
from albert_tf.data.settings import SequenceSettings, VocabularyFileSettings
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import MODEL, NOTHING, READING, REQUIRED, TRAINING
from albert_tf.training.settings import ExportSettings, RunSettings

QUANTIZATIONS = ("none", "float16", "int8")
NAN = float("nan")

SPLITS = {
    "train_file": ("", NOTHING),
    "dev_file": ("", NOTHING),
    "test_file": ("", NOTHING),
    "dev_fraction": (0.0, READING, 0, 1, None),
}

# Class, and name → default, what it affects and, if it has limits, minimum, maximum and choices.
DEFAULTS = [
    (
        FineTuningSettings,
        {
            "do_lower_case": (None, MODEL),
            "albert_hub_module_handle": (None, NOTHING),
            "pad_to_multiple": (None, TRAINING, 1, None, None),
            "official_order": (False, TRAINING),
            "save_checkpoints_steps": (1000, NOTHING, 1, None, None),
            "do_predict": (False, NOTHING),
            "predict_batch_size": (8, NOTHING, 1, None, None),
            "train_step": (1000, TRAINING, 1, None, None),
            "warmup_step": (0, TRAINING, 0, None, None),
            "num_train_epochs": (0.0, TRAINING, 0, None, None),
            "warmup_proportion": (0.1, TRAINING, 0, 1, None),
            "num_runs": (1, NOTHING, 1, None, None),
            "freeze_encoder": (False, TRAINING),
            "early_stopping_patience": (0, TRAINING, 0, None, None),
        },
    ),
    (
        classification.Settings,
        {
            "task_name": (REQUIRED, READING),
            "data_dir": (None, NOTHING),
            **SPLITS,
            "max_seq_length": (512, TRAINING, 5, 65536, None),
            "text_a_column": (None, READING),
            "text_b_column": (None, READING),
            "label_column": (None, READING),
            "has_header": (None, READING),
            "quoting": (False, READING),
            "labels": ((), NOTHING),
            "is_regression": (False, READING),
            "is_multi_label": (False, READING),
            "use_pooled_output": (True, MODEL),
            "export_texts": (True, NOTHING),
            "threshold_to_export": (NAN, NOTHING),
            "tflite_quantization": (None, NOTHING, None, None, QUANTIZATIONS),
        },
    ),
    (
        squad.Settings,
        {
            "data_dir": (None, NOTHING),
            "train_file": (None, NOTHING),
            "predict_file": (None, NOTHING),
            "dev_fraction": SPLITS["dev_fraction"],
            "version_2_with_negative": (None, NOTHING),
            "max_seq_length": (384, TRAINING, 1, 65536, None),
            "doc_stride": (128, TRAINING, 1, None, None),
            "max_query_length": (64, TRAINING, 1, None, None),
            "num_train_epochs": (3.0, TRAINING, 0, None, None),
            "dropout_prob": (0.1, TRAINING, 0, None, None),
            "eval_batch_size": (None, NOTHING, 1, None, None),
            "n_best_size": (20, NOTHING, 1, None, None),
            "max_answer_length": (30, NOTHING, 1, None, None),
            "start_n_top": (5, NOTHING, 1, None, None),
            "end_n_top": (5, NOTHING, 1, None, None),
            "official_threshold": (False, NOTHING),
            "null_score_diff_threshold": (None, NOTHING),
            "mixed_segmentation": (None, NOTHING),
            "num_workers": (None, NOTHING, 1, None, None),
            "tflite_quantization": ("none", NOTHING, None, None, QUANTIZATIONS),
        },
    ),
    (
        race.Settings,
        {
            "task_name": ("race", READING, None, None, ("race", "choice")),
            "data_dir": (None, NOTHING),
            **SPLITS,
            "label_column": (None, READING),
            "max_seq_length": (512, TRAINING, 4, 65536, None),
            "max_qa_length": (128, TRAINING, 1, None, None),
            "high_only": (False, NOTHING),
            "middle_only": (False, NOTHING),
            "do_train": (True, NOTHING),
            "do_eval": (True, NOTHING),
            "learning_rate": (1e-5, TRAINING, 0, None, None),
            "train_step": (12000, TRAINING, 1, None, None),
            "warmup_step": (1000, TRAINING, 0, None, None),
            "save_checkpoints_steps": (100, NOTHING, 1, None, None),
            "dropout_prob": (0.1, TRAINING, 0, None, None),
        },
    ),
    (
        token_classification.Settings,
        {
            "data_dir": (None, NOTHING),
            **SPLITS,
            "max_seq_length": (512, TRAINING, 3, 65536, None),
            "token_column": (0, READING),
            "label_column": (-1, READING),
            "tag_column": (None, READING),
            "tag_scheme": ("auto", READING, None, None, ("auto", "raw")),
            "dropout_prob": (0.1, TRAINING, 0, None, None),
        },
    ),
]


def described(*classes):
    """Returns name → what `DEFAULTS` says of the settings of some classes."""
    return {
        field.name: (
            field.default,
            *(field.metadata[key] for key in ("affects", "minimum", "maximum", "choices")),
        )
        for of in classes
        for field in dataclasses.fields(of)
    }


@pytest.mark.parametrize(("of", "expected"), DEFAULTS)
def test_settings_have_these_defaults_and_limits_and_affect_this(of, expected):
    inherited = described(RunSettings, ExportSettings, SequenceSettings, VocabularyFileSettings)
    if of is not FineTuningSettings:
        inherited |= described(FineTuningSettings)
    found = described(of)
    complete = {name: (*row, None, None, None)[:5] for name, row in expected.items()}
    assert repr({name: found[name] for name in expected}) == repr(complete)  # nan is not equal
    others = {name for name, row in found.items() if repr(inherited.get(name)) != repr(row)}
    assert others <= set(expected)
