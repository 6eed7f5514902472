r"""Converts an ALBERT checkpoint to another format, or prints what it contains.

    albert convert --inspect --input=albert_base_zh/

prints the kind of the checkpoint, and which of its tensors a model with its config would load.

    albert convert --input=albert_base/ --output=albert_base_hf/ \
        --output_format=huggingface

writes a new folder. The formats are `tensorflow` (model.ckpt-best.* and albert_config.json, for the
programs of Google and of this repository), `huggingface` (for from_pretrained in transformers),
`tf_hub` (a SavedModel for TensorFlow Hub) and `saved_model` (for servers; it maps texts to
embeddings, see docs/serving.md).

The input is a TensorFlow checkpoint of Google's ALBERT, albert_zh or the Model Garden, a TF-Hub
module, or a Hugging Face model. It is given as a checkpoint prefix, a file, or a folder that
contains one of these. Pickle files are refused. The config, the vocabulary and the label names are
searched for in the same folder and are converted as well: to config.json, spiece.model or
vocab.txt, tokenizer.json and id2label for Hugging Face, and to files of the original names and
run.json for the other formats.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.checkpoints.run_folder import CONFIG_FILE, RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning import registry
from albert_tf.model.config import AlbertConfig
from albert_tf.model.huggingface_tokenizer import is_tokenizer_file, list_files, load_tokenizer
from albert_tf.model.objectives import SCOPE, SOP
from albert_tf.settings import REQUIRED, SettingsGroup, setting

if TYPE_CHECKING:
    from albert_tf.checkpoints.loading import ModelSource
    from albert_tf.model.modeling import AlbertForPretraining

FORMATS = ("tensorflow", "huggingface", "tf_hub", "saved_model")
WITH_OWN_CONFIG = {"huggingface", "tf_hub"}  # config and vocabulary have other names there
MASKED_LM = "cls/predictions/"  # prefix of the names of the masked-LM head's weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSettings(SettingsGroup):
    """The files of a model to convert or to edit, besides the checkpoint."""

    albert_config_file: str | None = setting(
        None,
        "JSON file with the architecture of the input model; if not given, the one beside the "
        "input.",
    )
    vocab_file: str | None = setting(
        None, "WordPiece vocabulary of the input; if not given, the one beside the input."
    )
    spm_model_file: str | None = setting(
        None, "SentencePiece model of the input; if not given, the one beside the input."
    )
    do_lower_case: bool | None = setting(
        None,
        "Whether the vocabulary is uncased; if not given, as recorded with the input, or true if "
        "nothing is recorded.",
    )

    def open(self, path: str) -> ModelSource:
        """Opens the model of a checkpoint, with these files; see `ModelSource`."""
        from albert_tf.checkpoints.loading import ModelSource

        return ModelSource(
            path,
            self.albert_config_file,
            self.vocab_file,
            self.spm_model_file,
            self.do_lower_case,
        )


@dataclasses.dataclass(frozen=True)
class Settings(SourceSettings):
    """What to convert."""

    input: str = setting(REQUIRED, "Checkpoint to read: a prefix, a file or a folder.")
    output: str | None = setting(
        None, "Folder to write, which must be new or empty; required unless inspect is set."
    )
    output_format: str = setting("tensorflow", "Format to write.", choices=FORMATS)
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


def target_config(config: AlbertConfig, settings: Settings) -> AlbertConfig:
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


def convert(settings: Settings) -> bool:
    """Prints what the input contains and, unless `inspect` is set, writes the output.

    Returns:
        Whether the input matches the model of its config; without a config, nothing is compared.

    Raises:
        OSError, ValueError: the input, the output or the settings are invalid; the message says
            which.
    """
    _check_output(settings)
    finding.find_checkpoint(settings.input)

    from albert_tf.checkpoints import loading, releases

    source = settings.open(settings.input)
    model = _make_model(source, settings)
    report = loading.inspect_checkpoint(settings.input, model)
    if not settings.inspect and (model is None or not report.fits):
        raise ValueError(f"{report}\nThis checkpoint cannot be converted.")
    # Which heads of pre-training there are does not matter: those that are there are written.
    print(report if settings.inspect else report.contents)
    if release := releases.containing(loading.read_weights(settings.input)):
        print(f"  all weights are those of {release}")
    if model is not None and not settings.inspect:
        _write(_with_vocabulary(settings, source), source, model)
    return report.fits


def _make_model(source: ModelSource, settings: Settings) -> AlbertForPretraining | None:
    """Returns the model of the config; None if the checkpoint is of another kind of model.

    If the input is only inspected, this is None without a config as well.

    Raises:
        FileNotFoundError: there is no config file, and the conversion needs one.
        ValueError: there are several config files, or the config is invalid.
    """
    from albert_tf.model.modeling import AlbertForPretraining

    if source.recognized.refusal:
        return None
    try:
        config = source.config
    except FileNotFoundError:
        if settings.inspect and not settings.albert_config_file:
            return None
        raise
    return AlbertForPretraining(config, source.objective)


def _check_output(settings: Settings) -> None:
    if settings.inspect:
        return
    if not settings.output:
        raise ValueError("--output is required: name a new folder, or pass --inspect")
    check_new_folder(settings.output)
    for name in ("vocab_file", "spm_model_file"):
        path = getattr(settings, name)
        if path and not files.is_file(path):
            raise FileNotFoundError(f"--{name}={path}: no such file")


def check_new_folder(path: str) -> None:
    """Checks that a folder can be written under the path of `--output`, and creates its parents.

    Raises:
        ValueError: there is a file or a folder that is not empty, or the path cannot be written.
    """
    files.check_path(path, "--output")
    if files.is_file(path) or (files.is_directory(path) and files.list_directory(path)):
        raise ValueError(f"--output={path} already exists. Name a new folder.")
    files.ensure_directory(os.path.dirname(files.real_path(path)), "--output")


def _with_vocabulary(settings: Settings, source: ModelSource) -> Settings:
    """Returns the settings, completed with the vocabulary next to the input if they name none.

    Raises:
        ValueError: there are several vocabularies, or it is not the one of the model.
    """
    try:
        vocab_file, spm_model_file = source.vocabulary
    except FileNotFoundError:
        logging.warning(
            "No vocabulary found next to %s: the output will not have one", settings.input
        )
        return dataclasses.replace(settings, do_lower_case=source.do_lower_case)
    return dataclasses.replace(
        settings,
        vocab_file=vocab_file,
        spm_model_file=spm_model_file,
        do_lower_case=source.tokenizer.do_lower_case,
    )


def find_task(source: ModelSource) -> dict[str, Any]:
    """Returns the task that the input was fine-tuned for, as in `run.json`; {} if unknown.

    The labels are those of the record or of Hugging Face's config next to the input, or else those
    in `labels.txt` of an exported model.

    Raises:
        ValueError: one of these files is damaged.
    """
    task = dict(source.run.record.task)
    labels = task.get("labels") or finding.read_labels(source.folder)
    if not labels:
        return task
    if not task:
        specs = [spec for spec in registry.rows() if spec.is_fine_tuned]
        name = next((s.name for s in specs if registry.resolve(s.task).recognizes(labels)), None)
        task = {"name": name} if name else {}
    return task | {"labels": labels}


def _write(settings: Settings, source: ModelSource, model: AlbertForPretraining) -> None:
    """Writes the output under a temporary name, and renames it."""
    from albert_tf.checkpoints import loading
    from albert_tf.checkpoints.families import by_name, is_encoder
    from albert_tf.model.modeling import AlbertForPretraining

    if settings.output_format == "tf_hub" and "pooler" not in source.parts:
        raise ValueError(
            f"{settings.input} has no pooler, and --output_format=tf_hub returns its output"
        )
    config = target_config(model.config, settings)
    target = model
    if config != model.config:
        target = AlbertForPretraining(config, model.sentence_objective)
    names = by_name(target.variables)
    tensors = loading.read_weights(settings.input, target, bool(settings.num_hidden_groups))
    tensors = {name: x for name, x in tensors.items() if name in names or not is_encoder(name)}
    record = _record(settings, source)
    output = files.real_path(settings.output or "")
    with files.publish_directory(output, "--output") as temporary:
        if record != RunRecord():
            RunFolder(temporary).write_record(record)
        _WRITERS[settings.output_format](temporary, tensors, target, settings)
        if settings.output_format not in WITH_OWN_CONFIG:
            config.to_json_file(os.path.join(temporary, CONFIG_FILE))
            for path in filter(None, (settings.vocab_file, settings.spm_model_file)):
                _copy_tokenizer(path, temporary)
    print(f"wrote {settings.output} ({settings.output_format})")


def _copy_tokenizer(path: str, folder: str) -> None:
    """Copies a vocabulary, or the files of a Hugging Face tokenizer, to a folder."""
    for source in list_files(path):
        files.copy(source, os.path.join(folder, os.path.basename(source)))


def _record(settings: Settings, source: ModelSource) -> RunRecord:
    """Returns what is known of the input's training: vocabulary, sentence objective and task.

    Without a record, the vocabulary is the one that is written.
    """
    from albert_tf.checkpoints import run_record

    before = source.run.record
    names = run_record.VOCABULARY, run_record.LOWER_CASE, run_record.OBJECTIVE
    of_head = registry.get(before.task_name).head_settings if before.task_name else ()
    record = before.only(*names, *of_head)
    has_vocabulary = settings.spm_model_file or settings.vocab_file
    if has_vocabulary and run_record.VOCABULARY not in record.files:
        given = run_record.of_tokenizer(source.tokenizer, source.vocabulary_file)
        values = {**record.settings, **given.settings}
        record = dataclasses.replace(record, settings=values, files=given.files)
    return dataclasses.replace(record, task=find_task(source))


def _write_tensorflow(
    folder: str, tensors: dict[str, np.ndarray], model: AlbertForPretraining, settings: Settings
) -> None:
    from albert_tf.checkpoints import run_folder, store
    from albert_tf.checkpoints.families import GLOBAL_STEP

    step = {GLOBAL_STEP: np.int64(0)}  # Google's programs expect int64
    store.save_checkpoint(os.path.join(folder, run_folder.BEST), tensors | step)


def _write_hugging_face(
    folder: str, tensors: dict[str, np.ndarray], model: AlbertForPretraining, settings: Settings
) -> None:
    from albert_tf.checkpoints import huggingface

    record = RunFolder(folder).record
    if record.settings.get("use_pooled_output") is False:
        raise ValueError(
            "Hugging Face's ALBERT classifies the pooled output, but this model was trained with "
            "--nouse_pooled_output and classifies the mean of all tokens"
        )
    if model.objective.has_head and model.sentence_objective != SOP:
        logging.warning(
            "Hugging Face's name of the sentence head is sop_classifier, but this one was trained "
            "with sentence_objective=%s",
            model.sentence_objective,
        )
    vocabulary = (settings.vocab_file, settings.spm_model_file, bool(settings.do_lower_case))
    if is_tokenizer_file(settings.vocab_file or ""):  # Hugging Face's own
        _copy_tokenizer(settings.vocab_file or "", folder)
        vocabulary = (None, None, bool(settings.do_lower_case))
    huggingface.save_hugging_face(folder, tensors, model.config, *vocabulary, record.task)


def _write_tf_hub(
    folder: str, tensors: dict[str, np.ndarray], model: AlbertForPretraining, settings: Settings
) -> None:
    from albert_tf.checkpoints import saved_model

    masked_lm, pairs = _assign_with_heads(model, tensors, "a TF-Hub module")
    vocabulary = (settings.vocab_file, settings.spm_model_file, bool(settings.do_lower_case))
    if is_tokenizer_file(settings.vocab_file or ""):
        logging.warning(
            "A TF-Hub module has a vocabulary, not a Hugging Face tokenizer: it is left out"
        )
        vocabulary = (None, None, bool(settings.do_lower_case))
    saved_model.save_hub_module(folder, model, model.config, masked_lm, pairs, *vocabulary)


def _assign_with_heads(
    model: AlbertForPretraining, tensors: dict[str, np.ndarray], target: str
) -> tuple[bool, bool]:
    """Assigns weights as `_assign`, and logs a warning for each unused one.

    Args:
        model: the model to write.
        tensors: variable → value.
        target: the form in which the model is written, for the warnings.

    Returns:
        Whether the weights contain the masked-LM head, and the sentence head of the model.
    """
    for name in sorted(_assign(model, tensors)):
        logging.warning("%s is not part of %s and is left out", name, target)
    heads = _heads_in(tensors, model)
    return "masked_lm_logits" in heads, model.objective.logits_name in heads


def _heads_in(tensors: dict[str, np.ndarray], model: AlbertForPretraining) -> list[str]:
    """Returns the outputs of the model's heads for which there are weights."""
    scopes = {"masked_lm_logits": MASKED_LM}
    if model.objective.has_head:
        scopes[model.objective.logits_name] = SCOPE
    return [output for output, scope in scopes.items() if any(n.startswith(scope) for n in tensors)]


def _assign(model: AlbertForPretraining, tensors: dict[str, np.ndarray]) -> set[str]:
    """Assigns weights to a model, zeros where there are none; returns the unused names."""
    from albert_tf.checkpoints.families import by_name

    variables = by_name(model.variables)
    for name, variable in variables.items():
        variable.assign(tensors.get(name, np.zeros(variable.shape)))
    return tensors.keys() - variables.keys()


def _write_saved_model(
    folder: str, tensors: dict[str, np.ndarray], model: AlbertForPretraining, settings: Settings
) -> None:
    from albert_tf.checkpoints import saved_model, signatures
    from albert_tf.checkpoints.families import part_of
    from albert_tf.inference import pretrained

    masked_lm, pairs = _assign_with_heads(model, tensors, "a pre-trained SavedModel")
    tokenizer = None
    if settings.spm_model_file or settings.vocab_file:
        is_lower = bool(settings.do_lower_case)
        tokenizer = load_tokenizer(settings.vocab_file, is_lower, settings.spm_model_file)
    length = model.config.max_position_embeddings
    parts = {part_of(name) for name in tensors}
    if "pooler" not in parts:
        pretrained.leave_out_pooler(model)
    exported = signatures.embeddings_export(
        model.encoder, tokenizer, length, signatures.poolings_of(parts)
    )
    layers = [
        model.encoder,
        model.masked_lm if masked_lm else None,
        model.sentence_head if pairs else None,
    ]
    variables = [variable for layer in layers if layer for variable in layer.variables]
    saved_model.save(folder, saved_model.hold(variables), exported.signatures)


_WRITERS = {
    "saved_model": _write_saved_model,
    "tensorflow": _write_tensorflow,
    "huggingface": _write_hugging_face,
    "tf_hub": _write_tf_hub,
}


def run(settings: Settings) -> None:
    """Converts a checkpoint; exits with status 1 if the input does not match its config."""
    if logging.get_verbosity() == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    if not convert(settings):
        sys.exit(1)
