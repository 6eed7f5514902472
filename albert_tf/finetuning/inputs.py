"""Reads what a run needs before TensorFlow is imported, so that mistakes are reported at once.

These are the config, the vocabulary, and the record of the model that the run starts with; the data
are read by the `reader` of the task's row in `finetuning.registry`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.loading import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import sweeps
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.model.config import AlbertConfig
from albert_tf.model.huggingface_tokenizer import is_tokenizer_file, load_tokenizer
from albert_tf.model.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the runs of a sweep share, or what a single run has.

    Attributes:
        settings: the completed settings.
        planned: the settings of each run; see `sweeps.plan_runs`.
        config: the model's config.
        tokenizer: the tokenizer.
        trained: folder of the model that the runs start with or use; None for random weights.
    """

    settings: Any
    planned: list[Any]
    config: AlbertConfig
    tokenizer: Tokenizer
    trained: RunFolder | None


def read_inputs(settings: FineTuningSettings) -> Inputs:
    """Returns the inputs of a run or sweep with these completed settings.

    Raises:
        ValueError, OSError: a file is damaged, or config, vocabulary and `max_seq_length` do not
            match; the message says which.
    """
    planned = sweeps.plan_runs(settings)
    config = AlbertConfig.from_json_file(settings.albert_config_file or "")
    started = [run.trained_in(RunFolder(run.output_dir)) for run in planned]
    tokenizer = read_tokenizer(settings, config, started[0])
    trained = next((folder for folder in started if folder is not None), None)
    return Inputs(settings, planned, config, tokenizer, trained)


def read_tokenizer(
    settings: FineTuningSettings, config: AlbertConfig, trained: RunFolder | None = None
) -> Tokenizer:
    """Returns the tokenizer, after checking the vocabulary and `max_seq_length` against the model.

    Without `do_lower_case`, the case is what is known of the weights. The tokenizer of a Hugging
    Face folder knows it itself.

    Raises:
        ValueError: token ids or positions would be out of range; the message names both numbers.
    """
    do_lower_case = settings.do_lower_case
    if trained is not None and not is_tokenizer_file(settings.vocabulary_file):
        recorded = trained.record.settings.get(run_record.LOWER_CASE)
        if recorded is None:
            weights = trained.trained or settings.init_checkpoint or trained.path
            do_lower_case = ModelSource(weights, do_lower_case=do_lower_case).do_lower_case
        elif do_lower_case is None:
            do_lower_case = bool(recorded)
    tokenizer = load_tokenizer(settings.vocab_file, do_lower_case, settings.spm_model_file)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{settings.vocabulary_file} has {tokenizer.vocab_size} entries, but "
            f"{settings.albert_config_file} has vocab_size={config.vocab_size}: the vocabulary "
            "does not belong to this model"
        )
    config.check_length(settings.max_seq_length)
    return tokenizer
