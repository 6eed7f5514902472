"""Finds the files of the model that is fine-tuned, and checks all paths, without TensorFlow."""

from __future__ import annotations

import dataclasses
import os
from typing import TypeVar

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.finetuning.settings import FineTuningSettings

HUB_VOCABULARY = "from_tf_hub"  # what Google's notebook gives as --spm_model_file

SettingsType = TypeVar("SettingsType", bound=FineTuningSettings)


def complete(settings: SettingsType) -> SettingsType:
    """Returns the settings with what is to be done and the files of the model, all paths checked.

    Where the paths are local, TensorFlow is not imported, so that a wrong one is told at once.

    Raises:
        ValueError, OSError: a file or folder is missing or cannot be used; names the flag.
    """
    settings = find_model_files(settings.with_a_phase())
    settings.check_paths()
    return settings


def complete_early(settings: SettingsType) -> SettingsType:
    """Returns `complete` settings, so that a wrong path is told before TensorFlow is imported.

    One of several workers joins the others first, which hear of its failure then: its settings are
    returned as they are.
    """
    return settings if settings.has_workers else complete(settings)


def find_model_files(settings: SettingsType) -> SettingsType:
    """Returns the settings with config and vocabulary, which are looked for beside the weights.

    The weights are those of `init_checkpoint` or of the folder `albert_hub_module_handle`, which
    becomes the `init_checkpoint`; or else those of the trained run in `output_dir`.

    Raises:
        FileNotFoundError: config or vocabulary do not exist; says what was looked for.
        ValueError: there are no weights to look beside, or two; or the module is no local folder.
    """
    handle = settings.albert_hub_module_handle
    if handle and settings.init_checkpoint:
        raise ValueError(
            "--init_checkpoint and --albert_hub_module_handle: only one of them can give the "
            "weights; leave the other out"
        )
    if handle and handle.startswith(("http://", "https://")):
        raise ValueError(
            f"--albert_hub_module_handle={handle}: nothing is downloaded. Unpack the module into a "
            "folder and name that."
        )
    path = handle or settings.init_checkpoint
    spm_model_file, vocab_file = settings.spm_model_file, settings.vocab_file
    if spm_model_file == HUB_VOCABULARY:
        spm_model_file = None
    folder = None
    if path:
        folder = path if files.is_directory(path) else os.path.dirname(path) or "."
    elif finding.has_trained(settings.output_dir):
        folder = settings.output_dir
    if not (folder or settings.albert_config_file):
        raise ValueError(
            "--albert_config_file is needed: the albert_config.json that came with the model (a "
            "TF-Hub module may have it in its assets)"
        )
    config_file = settings.albert_config_file
    if folder:
        config_file = config_file or finding.find_config(folder)
        if not (spm_model_file or vocab_file):
            vocab_file, spm_model_file = finding.find_vocabulary(folder)
    return dataclasses.replace(
        settings,
        init_checkpoint=path,
        albert_hub_module_handle=None,
        albert_config_file=config_file,
        spm_model_file=spm_model_file,
        vocab_file=vocab_file,
    )
