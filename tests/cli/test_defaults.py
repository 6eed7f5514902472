"""Defaults and limits of the settings of the programs that neither train nor predict.

Each change is to be made here as well. Those of the other programs: `tests/training`,
`tests/finetuning` and `tests/inference`.
"""

from __future__ import annotations

import importlib

import pytest

from albert_tf.cli.programs import PROGRAMS
from albert_tf.settings import MODEL, NOTHING, REQUIRED, TRAINING, fields_of

TEXT = {
    "input_format": (
        *("sentences", NOTHING, None, None),
        ("sentences", "documents", "jsonl", "wikiextractor"),
    ),
    "text_field": ("text", NOTHING),
    "split_sentences": (False, NOTHING),
    "language": ("en", NOTHING),
}
VOCABULARY = {"spm_model_file": (None, NOTHING), "vocab_file": (None, NOTHING)}
FORMATS = ("segment_pair", "sentence_pair", "full_sentences", "doc_sentences")

# Name → default, what it affects and, if it has limits, minimum, maximum and choices.
TABLES = {
    "create-pretraining-data": TEXT
    | VOCABULARY
    | {
        "input_file": (REQUIRED, NOTHING),
        "output_file": (REQUIRED, NOTHING),
        "do_lower_case": (True, MODEL),
        "max_seq_length": (512, TRAINING, 1, 65536, None),
        "masked_lm_prob": (0.15, TRAINING, 0, 1, None),
        "max_predictions_per_seq": (20, TRAINING, 1, 65536, None),
        "ngram": (3, TRAINING, 1, None, None),
        "favor_shorter_ngram": (True, TRAINING),
        "do_whole_word_mask": (True, TRAINING),
        "do_permutation": (False, TRAINING),
        "dupe_factor": (40, NOTHING, 1, None, None),
        "instance_format": ("segment_pair", NOTHING, None, None, FORMATS),
        "short_seq_prob": (0.1, NOTHING, 0, 1, None),
        "sentence_objective": (None, MODEL, None, None, ("sop", "nsp", "none")),
        "random_next_sentence": (False, NOTHING),
        "random_seed": (12345, NOTHING, 0, None, None),
        "segment_chinese_words": (False, NOTHING),
        "albert_zh_compat": (False, NOTHING),
        "non_chinese": (False, NOTHING),
        "resume": (False, NOTHING),
        "work_dir": ("", NOTHING),
        "num_workers": (None, NOTHING, 1, None, None),
        "chunk_megabytes": (1.0, NOTHING, 1e-6, None, None),
        "shuffle_megabytes": (64.0, NOTHING, 1e-6, None, None),
        "num_logged_instances": (20, NOTHING, 0, None, None),
        "runner": ("", NOTHING),
        "beam_pipeline_options": ((), NOTHING),
    },
    "train-vocabulary": TEXT
    | {
        "input_file": (REQUIRED, NOTHING),
        "output_prefix": (REQUIRED, NOTHING),
        "type": ("sentencepiece", NOTHING, None, None, ("sentencepiece", "wordpiece")),
        "vocab_size": (30000, NOTHING, 1, None, None),
        "hard_vocab_limit": (True, NOTHING),
        "do_lower_case": (True, NOTHING),
        "character_coverage": (0.99995, NOTHING, 0, 1, None),
        "input_sentence_size": (10_000_000, NOTHING, 101, None, None),
        "shuffle_input_sentence": (True, NOTHING),
        "user_defined_symbols": (("(", ")", '"', "-", ".", "–", "£", "€"), NOTHING),
        "max_sentence_length": (4192, NOTHING),
        "overwrite": (False, NOTHING),
    },
    "inspect-records": VOCABULARY
    | {
        "input_file": (REQUIRED, NOTHING),
        "num_instances": (5, NOTHING, 0, None, None),
        "max_records": (10_000, NOTHING, 0, None, None),
    },
    "convert": VOCABULARY
    | {
        "input": (REQUIRED, NOTHING),
        "output": (None, NOTHING),
        "max_seq_length": (None, NOTHING, 1, None, None),
        "quantization": ("none", NOTHING, None, None, ("none", "float16", "int8")),
        "output_format": (
            *("tensorflow", NOTHING, None, None),
            ("tensorflow", "huggingface", "tf_hub", "saved_model", "tflite", "onnx", "openvino"),
        ),
        "inspect": (False, NOTHING),
        "merge_embeddings": (False, NOTHING),
        "num_hidden_groups": (None, NOTHING, 1, None, None),
        "albert_config_file": (None, NOTHING),
        "do_lower_case": (None, NOTHING),
    },
    "describe": {
        "model": (REQUIRED, NOTHING),
        "max_seq_length": (128, TRAINING, 1, 65536, None),
        "max_predictions_per_seq": (20, TRAINING, 1, 65536, None),
        "train_batch_size": (32, TRAINING, 1, 1 << 20, None),
        "precision": ("float32", NOTHING, None, None, ("float32", "bfloat16")),
    },
    "download": {
        "name": (None, NOTHING),
        "cache_dir": (None, NOTHING),
        "hub": (False, NOTHING),
    },
    "plot-results": {"output_dir": (REQUIRED, NOTHING)},
}
ELSEWHERE = {
    "run-pretraining",
    "run-classifier",
    "run-squad",
    "run-race",
    "run-token-classification",
    "run-predict",
}


def test_all_programs_have_a_table():
    assert TABLES.keys() | ELSEWHERE == PROGRAMS.keys()


@pytest.mark.parametrize("program", TABLES)
def test_settings_have_these_defaults_and_limits(program):
    settings_class = importlib.import_module(PROGRAMS[program].module).Settings
    found = {}
    for field in fields_of(settings_class):
        limits = field.minimum, field.maximum, field.choices and tuple(field.choices)
        has_limits = any(limit is not None for limit in limits)
        default = REQUIRED if field.is_required else field.default
        found[field.name] = (default, field.affects, *(limits if has_limits else ()))
    assert found == TABLES[program]
