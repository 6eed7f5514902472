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


def rows_for(
    table: dict[type[SettingsGroup], dict[str, Entry]], settings_class: type[SettingsGroup]
) -> dict[str, Entry]:
    """Returns the rows of `ALIASES` or `IGNORED` that belong to a settings class."""
    rows: dict[str, Entry] = {}
    for group, group_rows in table.items():
        if issubclass(settings_class, group):
            rows.update(group_rows)
    return rows
