"""Loads a model and its tokenizer from a folder of any origin.

Released archives, Hugging Face repositories, TF-Hub modules and the output directories of this
package's programs contain the same three things with different names: a config, weights and a
vocabulary. `finding` finds them; whatever is missing or ambiguous can be passed as an argument.
Users call `albert_tf.from_pretrained`, whose result can also be called with texts.
"""

from __future__ import annotations

import inspect
from typing import Any

from absl import logging

from albert_tf import files, included, tasks
from albert_tf.checkpoints import families, finding, run_record
from albert_tf.checkpoints.containers import WeightFile, open_weights
from albert_tf.checkpoints.huggingface import TOKENIZER_CONFIG_FILE
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.config import AlbertConfig, is_hugging_face
from albert_tf.tasks import TaskSpec
from albert_tf.tokenization import FullTokenizer

NUM_LABELS = "num_labels"  # argument of the heads whose number of outputs is not fixed


def load_pretrained(
    folder: str,
    task: str | None = None,
    num_labels: int | None = None,
    *,
    config_file: str | None = None,
    vocab_file: str | None = None,
    spm_model_file: str | None = None,
    do_lower_case: bool | None = None,
    **head_arguments: Any,
) -> tuple[Any, FullTokenizer]:
    """Returns a model with the weights from a folder, and its tokenizer.

    The public function is `albert_tf.from_pretrained`, which documents arguments and errors.
    """
    spec = tasks.get(tasks.EMBEDDINGS if task is None else task)
    weights = open_weights(folder)
    recognized = families.recognize(weights.shapes)
    folder = finding.folder_of(folder)
    config_file = config_file or finding.find_config(folder)
    config = read_config(config_file, recognized)
    if not (vocab_file or spm_model_file):
        vocab_file, spm_model_file = finding.find_vocabulary(folder)
    if do_lower_case is None:
        do_lower_case = find_do_lower_case(folder, weights)
    length = config.max_position_embeddings
    tokenizer = FullTokenizer(vocab_file, do_lower_case, spm_model_file, max_length=length)
    check_vocabulary(tokenizer, spm_model_file or vocab_file or "", config, config_file, folder)
    head_arguments = {**spec.head_arguments, **_recorded_head(folder, spec), **head_arguments}
    if spec.name == tasks.FILL_MASK:  # the model has the heads of pre-training
        objective = run_record.read_objective(finding.records_of(folder))
        head_arguments = {run_record.OBJECTIVE: objective, **head_arguments}
    model = _make_model(config, spec, num_labels, recognized, head_arguments)
    load_checkpoint(model, weights.path)
    return model, tokenizer


def _make_model(
    config: AlbertConfig,
    spec: TaskSpec,
    num_labels: int | None,
    recognized: families.Recognized,
    head_arguments: dict[str, Any],
) -> Any:
    head = tasks.resolve(spec.head)
    takes_labels = NUM_LABELS in inspect.signature(head.__init__).parameters
    if takes_labels and NUM_LABELS not in head_arguments:
        head_arguments[NUM_LABELS] = _num_labels(num_labels, spec, recognized)
    elif num_labels is not None and not takes_labels:
        raise ValueError(f"num_labels={num_labels}: task={spec.name!r} has no labels")
    return head(config, **head_arguments)


def _recorded_head(folder: str, spec: TaskSpec) -> dict[str, Any]:
    """Returns the arguments of the head that the run in a folder was trained with."""
    if not spec.head_settings:
        return {}
    recorded = run_record.read_settings(finding.records_of(folder))
    return run_record.values_of(recorded, spec.head_settings, tasks.resolve(spec.settings))


def _num_labels(num_labels: int | None, spec: TaskSpec, recognized: families.Recognized) -> int:
    if num_labels is not None:
        return num_labels
    if spec.head_variable not in recognized.entries:
        raise ValueError(
            f"num_labels is required, because the checkpoint has no {spec.name} head "
            f"({spec.head_variable})"
        )
    return recognized.entries[spec.head_variable].shape[0]


def check_vocabulary(
    tokenizer: FullTokenizer, vocabulary: str, config: AlbertConfig, config_file: str, folder: str
) -> None:
    """Checks that a vocabulary belongs to a model; warns if it probably does not.

    Args:
        tokenizer: the tokenizer with the vocabulary.
        vocabulary: path of the vocabulary.
        config: the model's config.
        config_file: path of the config.
        folder: folder of the model's checkpoint.

    Raises:
        ValueError: the vocabulary is larger than the embedding table, or not the one that the model
            was trained with.
    """
    found = run_record.of_tokenizer(tokenizer, vocabulary)
    records = finding.records_of(folder)
    is_known = run_record.check_vocabulary(records, found) is not None
    if tokenizer.vocab_size == config.vocab_size:
        return
    message = (
        f"{vocabulary} has {tokenizer.vocab_size} entries, the model of {config_file} has "
        f"vocab_size={config.vocab_size}"
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(f"{message}: they do not match")
    if not is_known:
        logging.warning("%s: make sure that they belong together", message)


def read_config(path: str, recognized: families.Recognized) -> AlbertConfig:
    """Reads the config of a checkpoint: Google's, albert_zh's, BERT's or Hugging Face's.

    Args:
        path: the JSON file, or the name of a config of this package.
        recognized: the checkpoint. If its weights only fit a model with E = H, the config is
            changed accordingly.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the config is invalid.
    """
    values = files.read_json(included.config_file(path))
    try:
        if recognized.kind.is_square and not is_hugging_face(values):
            sizes = families.sizes(recognized.entries)
            keys = sizes.keys() & {"embedding_size", "num_hidden_groups"}
            values |= {key: sizes[key] for key in keys}
            values["layout"] = "google"
        return AlbertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def find_do_lower_case(folder: str, weights: WeightFile) -> bool:
    """Returns whether a folder's vocabulary is for lowercased text; True if this is not known."""
    recorded = run_record.read_settings(finding.records_of(folder))
    if run_record.LOWER_CASE in recorded:
        return recorded[run_record.LOWER_CASE] == str(True)
    flags = finding.read_json_if_there(folder, TOKENIZER_CONFIG_FILE)
    if "do_lower_case" in flags:
        return bool(flags["do_lower_case"])
    if "do_lower_case" in weights.shapes:  # a variable of TF-Hub modules
        return bool(weights.read("do_lower_case"))
    return True
