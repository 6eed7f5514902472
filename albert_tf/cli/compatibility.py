"""Flags of other projects: their aliases, those without effect here, and albert_zh's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from albert_tf import data, pretraining
from albert_tf.data import settings as data_settings
from albert_tf.data import train_vocabulary
from albert_tf.finetuning import classification, race, squad
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import SettingsGroup
from albert_tf.training.settings import DeviceSettings, ModelSettings

Entry = TypeVar("Entry")

# Aliases of flags in albert_zh, in some of Google's programs and in spm_train: settings class →
# alias → name of the field.
ALIASES: dict[type[SettingsGroup], dict[str, str]] = {
    ModelSettings: {"bert_config_file": "albert_config_file"},
    race.Settings: {"num_keep_checkpoint": "keep_checkpoint_max"},
    FineTuningSettings: {"num_train_steps": "train_step", "num_warmup_steps": "warmup_step"},
    pretraining.Settings: {"train_step": "num_train_steps", "warmup_step": "num_warmup_steps"},
    train_vocabulary.Settings: {"input": "input_file", "model_prefix": "output_prefix"},
}
# Flags of old command lines that are accepted without effect: settings class → name → type, `bool`,
# or `str` for any value.
IGNORED: dict[type[SettingsGroup], dict[str, type]] = {
    data.Settings: {"input_file_mode": str},
    train_vocabulary.Settings: dict.fromkeys(
        ("model_type", "control_symbols", "pad_id", "unk_id", "bos_id", "eos_id"), str
    ),
    pretraining.Settings: {"masked_lm_budget": str, "export_dir": str},
    classification.Settings: {"cached_dir": str},
    race.Settings: {"eval_file": str, "predict_file": str},
    squad.Settings: {
        "train_feature_file": str,
        "predict_feature_file": str,
        "predict_feature_left_file": str,
        "use_einsum": bool,
    },
    DeviceSettings: {"master": str, "num_tpu_cores": str, "iterations_per_loop": str},
}


@dataclasses.dataclass(frozen=True)
class OtherDefaults:
    """Defaults of albert_zh that differ from Google's.

    Attributes:
        spellings: flags, or flags with a value, that only exist in albert_zh. A command line with
            one of them was written for albert_zh, so its defaults apply.
        values: name of the field → default.
    """

    spellings: tuple[str, ...] = ()
    values: Mapping[str, object] = dataclasses.field(default_factory=dict)


# The defaults of albert_zh's programs: settings class of the corresponding program → defaults.
ALBERT_ZH_DEFAULTS: dict[type[SettingsGroup], OtherDefaults] = {
    data.Settings: OtherDefaults(("non_chinese",), data_settings.ALBERT_ZH_DEFAULTS),
    pretraining.Settings: OtherDefaults(
        ("bert_config_file",),
        {
            "max_seq_length": 128,
            "do_train": False,
            "train_batch_size": 32,
            "eval_batch_size": 8,
            "optimizer": "lamb_albert_zh",
            "learning_rate": 5e-5,
            "num_train_steps": 100000,
            "num_warmup_steps": 10000,
            "save_checkpoints_steps": 1000,
            "keep_checkpoint_max": 20,
        },
    ),
    classification.Settings: OtherDefaults(
        ("bert_config_file", "task_name=lcqmc_pair"),
        {"max_seq_length": 128, "num_train_epochs": 3.0},
    ),
}


# What other libraries call a flag → the names that it may have here, for suggestions.
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs"), ("num_train_epochs",)),
    **dict.fromkeys(
        ("batch_size", "per_device_train_batch_size", "bs"), ("train_batch_size", "batch_size")
    ),
    **dict.fromkeys(
        ("per_device_eval_batch_size", "dev_batch_size"), ("eval_batch_size", "batch_size")
    ),
    **dict.fromkeys(
        ("model_name_or_path", "model_name", "model", "model_path", "pretrained_model", "preset"),
        ("init_checkpoint", "model_dir", "input"),
    ),
    **dict.fromkeys(("lr", "learn_rate"), ("learning_rate",)),
    **dict.fromkeys(
        ("max_length", "max_len", "seq_length", "sequence_length", "seq_len"), ("max_seq_length",)
    ),
    **dict.fromkeys(("max_steps", "steps", "num_steps"), ("train_step", "num_train_steps")),
    **dict.fromkeys(("warmup_steps", "warmup"), ("warmup_step", "num_warmup_steps")),
    "warmup_ratio": ("warmup_proportion",),
    "save_steps": ("save_checkpoints_steps",),
    "logging_steps": ("log_steps",),
    "save_total_limit": ("keep_checkpoint_max",),
    **dict.fromkeys(("fp16", "bf16", "dtype", "mixed_precision"), ("precision",)),
    **dict.fromkeys(("dataset", "dataset_name", "data", "data_path"), ("data_dir", "input_file")),
    **dict.fromkeys(("train_data", "train_path", "training_file"), ("train_file", "input_file")),
    **dict.fromkeys(
        ("validation_file", "eval_file", "valid_file", "val_file"), ("dev_file", "eval_input_file")
    ),
    **dict.fromkeys(("output", "out", "save_dir", "model_output"), ("output_dir", "output_file")),
    **dict.fromkeys(("text_column", "text_column_name", "sentence_column"), ("text_a_column",)),
    **dict.fromkeys(("target_column", "label_column_name"), ("label_column",)),
    **dict.fromkeys(("config", "config_name", "config_file"), ("albert_config_file",)),
    **dict.fromkeys(
        ("tokenizer", "tokenizer_name", "spm_model", "vocab"), ("spm_model_file", "vocab_file")
    ),
    **dict.fromkeys(("num_gpus", "gpus", "n_gpu"), ("num_devices",)),
    "optim": ("optimizer",),
    **dict.fromkeys(("train", "training"), ("do_train",)),
    **dict.fromkeys(("eval", "evaluate"), ("do_eval",)),
    **dict.fromkeys(("predict", "test"), ("do_predict",)),
}

# Names of flags with which others choose a GPU, where this package needs none.
GPU_NAMES = ("device", "gpu", "gpus", "cuda", "use_gpu", "use_cuda", "num_gpus", "n_gpu")


def rows_for(
    table: dict[type[SettingsGroup], dict[str, Entry]], settings_class: type[SettingsGroup]
) -> dict[str, Entry]:
    """Returns the rows of `ALIASES` or `IGNORED` that belong to a settings class."""
    rows: dict[str, Entry] = {}
    for group, group_rows in table.items():
        if issubclass(settings_class, group):
            rows.update(group_rows)
    return rows
