"""The engine and the tools that all fine-tuning programs share.

What a run needs is read here, before TensorFlow is imported, so that mistakes are reported at once:
config, vocabulary, the record of the model that the run starts with, and the data.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import registry
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.model.config import AlbertConfig
from albert_tf.model.huggingface_tokenizer import is_tokenizer_file, load_tokenizer
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook


def run_task(
    name: str, settings: Any, hooks: Sequence[Hook] = (), data: Any = None
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a model for a task.

    Args:
        name: name of the task in `albert_tf.finetuning.registry`.
        settings: of the class in the task's row. If none of `do_train`, `do_eval`, `do_predict` and
            `export_dir` is set, it trains and evaluates. Config and vocabulary can be omitted if
            they are beside `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        data: the data, if they have been read: what the `reader` of the task's row returns.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: the task does not exist, or settings, files or data are invalid or
            inconsistent; the message says which.
    """
    spec = registry.get(name)
    if not spec.is_fine_tuned:
        raise ValueError(f"task={name!r}: no model is fine-tuned for it")
    inputs = read_inputs(settings.completed())
    if spec.reader is not None and data is None:
        data = registry.resolve(spec.reader)(inputs.settings, inputs.trained)
    from albert_tf.finetuning.run import fine_tune  # imported late: needs TensorFlow

    make_task = registry.resolve(spec.task).make
    if data is not None:
        make_task = functools.partial(make_task, data=data)
    return fine_tune(inputs, make_task, name, hooks)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the runs of a sweep share, or what a single run has.

    Attributes:
        settings: the completed settings.
        config: the model's config.
        tokenizer: the tokenizer.
        trained: folder of the model that the runs start with or use; None for random weights.
    """

    settings: Any
    config: AlbertConfig
    tokenizer: Tokenizer
    trained: RunFolder | None


def read_inputs(settings: FineTuningSettings) -> Inputs:
    """Returns the inputs of a run or sweep with these completed settings.

    Raises:
        ValueError, OSError: a file is damaged, config, vocabulary and `max_seq_length` do not
            match, or the folder of a run contains another model; the message says which.
    """
    path = settings.albert_config_file or ""
    config = AlbertConfig.from_json_file(path)
    runs = settings.runs()
    for run in runs:
        RunFolder(run.output_dir).check_config(config, path)
    trained = runs[0].trained_in(RunFolder(runs[0].output_dir))
    tokenizer = read_tokenizer(settings, config, trained)
    return Inputs(settings, config, tokenizer, trained)


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
