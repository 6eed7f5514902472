"""Converts checkpoints between the formats of programs and libraries: `albert convert`.

The command is in `inference/convert.py`, which adds formats that compute what a model was trained
for.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import logging

from albert_tf import files, tensorflow_packages
from albert_tf.checkpoints import loading, releases, run_record, tasks
from albert_tf.checkpoints.load_report import LoadReport
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import CONFIG_FILE, RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.data.settings import VocabularyFileSettings
from albert_tf.export import model_card
from albert_tf.export.formats import FORMATS
from albert_tf.export.weights import Output
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer, read_files
from albert_tf.settings import REQUIRED, setting

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.model.modeling import AlbertForPretraining


@dataclasses.dataclass(frozen=True)
class Settings(VocabularyFileSettings):
    """What to convert."""

    GROUP = "flags"

    input: str = setting(REQUIRED, "Checkpoint to read: a prefix, a file or a folder.")
    output: str | None = setting(
        None, "Folder to write, which must be new or empty; required unless inspect is set."
    )
    output_format: str = setting(
        "tensorflow",
        "Format to write.",
        choices=tuple(name for name, row in FORMATS.items() if row.write_weights),
    )
    inspect: bool = setting(False, "Only print what the input contains.")
    merge_embeddings: bool = setting(
        False,
        "Convert albert_zh's layout (post-LN) to Google's with embedding_size = hidden_size, "
        "which has the same outputs and makes the file larger.",
    )
    num_hidden_groups: int | None = setting(
        None,
        "Number of layer groups to write, all with the weights of the input's group 0; if not "
        "given, as in the input.",
        minimum=1,
    )
    albert_config_file: str | None = setting(
        None,
        "JSON file with the architecture of the input model; if not given, the one next to the "
        "input.",
    )
    do_lower_case: bool | None = setting(
        None,
        "Whether the vocabulary is uncased; if not given, as recorded with the input, or true if "
        "nothing is recorded.",
    )


def run(settings: Settings) -> Iterator[str]:
    """Yields what the input contains and, unless `inspect` is set, writes the output.

    Exits with status 1 if `inspect` is set and the input does not match the model of its config;
    without a config, nothing is compared.

    Raises:
        OSError, ValueError: the input, the output or the settings are invalid; the message says
            which.
    """
    tensorflow_packages.check()
    if logging.get_verbosity() == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    check_output(settings)
    source = open_input(settings)
    model = _make_model(source, settings)
    report = loading.inspect_checkpoint(settings.input, model)
    weights = loading.lazy_weights(settings.input)
    yield from _describe(source, settings.input, report) if settings.inspect else [report.heading]
    if release := releases.containing(weights):
        yield f"  all weights are those of {release}"
    if settings.inspect:
        for name in weights:
            _ = weights[name]  # raises an error if it is damaged
        if not report.fits:
            sys.exit(1)
        return
    # Which heads of pre-training there are does not matter: those that are there are written.
    if model is None or not report.fits:
        raise ValueError(f"{report}\nThis checkpoint cannot be converted.")
    _write(settings, source, model)
    yield f"wrote {settings.output} ({settings.output_format})"


def _describe(source: ModelSource, path: str, report: LoadReport) -> Iterator[str]:
    """Yields what a checkpoint contains; of a fine-tuned model, its task, and what its head is."""
    from albert_tf.model import initialization
    from albert_tf.model.modeling import AlbertEncoder

    record = source.run.record
    if not record.task_name or record.task_name in tasks.ALIASES.values() or not report.fits:
        yield str(report)
        return
    with initialization.without_values():
        encoder = AlbertEncoder(source.config)
    yield loading.inspect_checkpoint(path, encoder).as_text(unused="head")
    labels = f", labels {files.quote_all(record.labels)}" if record.labels else ""
    yield f"  fine-tuned for {record.task_name}{labels}; programs that open it load its head"


def _make_model(source: ModelSource, settings: Settings) -> AlbertForPretraining | None:
    """Returns the model of the config, whose weights have no values.

    It is None if the checkpoint is of another kind of model, and if the input is only inspected,
    without a config as well.

    Raises:
        FileNotFoundError: there is no config file, and the conversion needs one.
        ValueError: there are several config files, or the config is invalid.
    """
    if source.recognized.refusal:
        return None
    try:
        config = source.config
    except FileNotFoundError:
        if settings.inspect and not settings.albert_config_file:
            return None
        raise
    return _model_of(config, source.objective)


def _model_of(config: AlbertConfig, objective: str) -> AlbertForPretraining:
    from albert_tf.model import initialization
    from albert_tf.model.modeling import AlbertForPretraining

    with initialization.without_values():  # they are assigned where they are needed
        return AlbertForPretraining(config, objective)


def open_input(settings: Settings) -> ModelSource:
    """Returns the model to convert.

    Raises:
        OSError, ValueError: there is none, or its files do not fit together.
    """
    return ModelSource.open(
        settings.input,
        settings.albert_config_file,
        settings.vocab_file,
        settings.spm_model_file,
        settings.do_lower_case,
    )


def check_output(settings: Settings) -> None:
    """Checks that the output can be written, before anything is read.

    Raises:
        ValueError: it is not named, or exists already.
    """
    if settings.inspect:
        return
    settings.check_paths()
    path = settings.output
    if not path:
        raise ValueError("--output is required: name a new folder, or pass --inspect")
    files.check_path(path, "--output")
    if files.is_file(path) or (files.is_directory(path) and files.list_directory(path)):
        raise ValueError(f"--output={path} already exists. Name a new folder.")
    files.ensure_directory(os.path.dirname(files.real_path(path)), "--output")


def _write(settings: Settings, source: ModelSource, model: AlbertForPretraining) -> None:
    """Writes the output under a temporary name, and renames it."""
    if settings.output_format == "tf_hub" and "pooler" not in source.parts:
        raise ValueError(
            f"{settings.input} has no pooler, and --output_format=tf_hub returns its output"
        )
    config = _target_config(model.config, settings)
    if config != model.config:
        model = _model_of(config, model.sentence_objective)
    if source.is_of_sentence_transformers:
        logging.warning(
            "%s: only the model is written, without the pooling and the other modules of "
            "modules.json: pass --pooling where it is used",
            settings.input,
        )
    tensors = loading.lazy_weights(settings.input, model, bool(settings.num_hidden_groups))
    tokenizer = _find_tokenizer(settings, source)
    record = _record(settings, source, tokenizer)
    with files.publish_directory(files.real_path(settings.output or ""), "--output") as folder:
        if record != RunRecord():
            RunFolder(folder).write_record(record)
        output_format = FORMATS[settings.output_format]
        if output_format.write_weights is None:
            raise ValueError(f"--output_format={output_format.name} has no weights")
        output_format.write_weights(Output(folder, model, tensors, tokenizer, record))
        if output_format.name == "huggingface":
            model_card.write(folder, source.run)
        if not output_format.has_own_files:
            config.to_json_file(os.path.join(folder, CONFIG_FILE))
            found = read_files(source.vocabulary_file) if tokenizer else {}
            for name, content in found.items():
                files.write_file(os.path.join(folder, name), content)


def _target_config(config: AlbertConfig, settings: Settings) -> AlbertConfig:
    """Returns the config of the output for an input with the config `config`.

    Raises:
        ValueError: the model cannot be converted with these settings.
    """
    if settings.merge_embeddings and config.layout == "albert_zh":
        if config.ln_type != "postln":
            raise ValueError("--merge_embeddings: Google's layout does not support pre-LN models")
        config = dataclasses.replace(config, layout="google", embedding_size=config.hidden_size)
    if settings.num_hidden_groups:
        config = dataclasses.replace(config, num_hidden_groups=settings.num_hidden_groups)
    return config


def _find_tokenizer(settings: Settings, source: ModelSource) -> Tokenizer | None:
    """Returns the tokenizer of the input; None, with a warning, if it has no vocabulary.

    Raises:
        ValueError: there are several vocabularies, or it is not the one of the model.
    """
    try:
        return source.tokenizer
    except FileNotFoundError:
        logging.warning(
            "No vocabulary found next to %s: the output will not have one", settings.input
        )
        return None


def _record(settings: Settings, source: ModelSource, tokenizer: Tokenizer | None) -> RunRecord:
    """Returns what is known of the input's training: vocabulary, sentence objective and task.

    The task is that of a head, which some formats do not have. Without a record, the vocabulary is
    the one that is written.
    """
    before = source.run.record
    names = run_record.VOCABULARY, run_record.LOWER_CASE, run_record.OBJECTIVE
    of_head = tasks.head_settings(before.task_name) if before.task_name else ()
    record = before.only(*names, *of_head)
    if tokenizer is not None and run_record.VOCABULARY not in record.files:
        given = run_record.of_tokenizer(tokenizer, source.vocabulary_file)
        values = {**record.settings, **given.settings}
        record = dataclasses.replace(record, settings=values, files=given.files)
    has_task = FORMATS[settings.output_format].has_task
    return dataclasses.replace(record, task=before.task if has_task else {})
