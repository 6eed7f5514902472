"""Finds the files of the model to fine-tune, and checks all paths, without TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from albert_tf.checkpoints import finding, releases
from albert_tf.finetuning.settings import FineTuningSettings

HUB_VOCABULARY = "from_tf_hub"  # the value of --spm_model_file in Google's notebook

SettingsType = TypeVar("SettingsType", bound=FineTuningSettings)


def complete(settings: SettingsType) -> SettingsType:
    """Fills in the phases to run and the model's files, and checks all paths.

    TensorFlow is not imported if the paths are local, so that wrong paths are reported at once.

    Returns:
        The completed settings.

    Raises:
        ValueError, OSError: a file or folder is missing or unusable; the message names the flag.
    """
    settings = find_model_files(settings.with_a_phase())
    settings.check_paths()
    return settings


def find_model_files(settings: SettingsType) -> SettingsType:
    """Fills in the config and the vocabulary, which are looked up beside the weights.

    The weights come from `init_checkpoint`, or from the folder `albert_hub_module_handle` (which
    becomes the `init_checkpoint`), or else from the trained run in `output_dir`.

    Returns:
        The settings with config and vocabulary.

    Raises:
        FileNotFoundError: the config or the vocabulary was not found; the message says which files
            were looked for.
        ValueError: no weights are given and no config, or two sources of weights are given, or the
            module is neither a local folder nor a released one.
    """
    handle = settings.albert_hub_module_handle
    if handle and settings.init_checkpoint:
        raise ValueError(
            "--init_checkpoint and --albert_hub_module_handle are mutually exclusive: both specify "
            "the weights"
        )
    if handle and handle.startswith(("http://", "https://")) and not releases.named(handle):
        raise ValueError(
            f"--albert_hub_module_handle={handle}: modules are not downloaded. Unpack the module "
            "and pass its folder. `albert download` lists those with a name."
        )
    weights = handle or settings.init_checkpoint
    settings = dataclasses.replace(
        settings, init_checkpoint=weights, albert_hub_module_handle=None
    ).with_config()
    spm_model_file = settings.spm_model_file
    vocab_file = settings.vocab_file
    if spm_model_file == HUB_VOCABULARY:
        spm_model_file = None
    if settings.model_folder:
        vocab_file, spm_model_file = finding.choose_vocabulary(
            settings.model_folder, vocab_file, spm_model_file
        )
    return dataclasses.replace(settings, spm_model_file=spm_model_file, vocab_file=vocab_file)
