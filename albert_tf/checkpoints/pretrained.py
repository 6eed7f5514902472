"""Loads a model and its tokenizer from a folder of any origin.

Released archives, Hugging Face repositories, TF-Hub modules and the output directories of this
package's programs contain the same three things with different names: a config, weights and a
vocabulary. `finding` finds them; whatever is missing or ambiguous can be passed as an argument.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from absl import logging

from albert_tf import tasks
from albert_tf.checkpoints import families, finding, run_record
from albert_tf.checkpoints.containers import open_weights
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.names import part_of
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.huggingface_tokenizer import (
    TOKENIZER_CONFIG_FILE,
    is_tokenizer_file,
    load_tokenizer,
)
from albert_tf.model.objectives import NONE, OBJECTIVES, SOP
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tasks import TaskSpec

NUM_LABELS = "num_labels"  # argument of the heads whose number of outputs is not fixed


class ModelSource:
    """A model in a folder of any origin, whose parts are found and read when they are asked for.

    Attributes:
        weights: the checkpoint, of which only names and shapes have been read.
        recognized: the family of the checkpoint.
        folder: the folder with the config, the vocabulary and the records of the training.
    """

    def __init__(
        self,
        path: str,
        config_file: str | None = None,
        vocab_file: str | None = None,
        spm_model_file: str | None = None,
        do_lower_case: bool | None = None,
    ) -> None:
        """Opens a checkpoint.

        Args:
            path: as in `find_checkpoint`.
            config_file: path of the config, or name of one of this package; None to look for it.
            vocab_file: path of the WordPiece vocabulary; None to look for a vocabulary.
            spm_model_file: path of the SentencePiece model, likewise.
            do_lower_case: whether the vocabulary is uncased; None for what is recorded, or True.

        Raises:
            FileNotFoundError, ValueError: there is no such checkpoint, or it is damaged.
        """
        self.weights = open_weights(path)
        self.recognized = families.recognize(self.weights.shapes)
        self.folder = finding.folder_of(path)
        self._config_file = config_file
        self._do_lower_case = do_lower_case
        self._vocabulary = vocab_file, spm_model_file

    @functools.cached_property
    def config_file(self) -> str:
        """Path of the config.

        Raises:
            FileNotFoundError, ValueError: see `finding.find_config`.
        """
        if self._config_file:
            return config_file(self._config_file)
        return finding.find_config(self.folder)

    @functools.cached_property
    def config(self) -> AlbertConfig:
        """The config: Google's, albert_zh's or Hugging Face's.

        Raises:
            FileNotFoundError, ValueError: there is no config, or it is invalid.
        """
        return AlbertConfig.from_json_file(self.config_file)

    @functools.cached_property
    def vocabulary(self) -> tuple[str | None, str | None]:
        """Paths of vocabulary or tokenizer, and of the SentencePiece model; one may be None.

        Raises:
            FileNotFoundError, ValueError: see `finding.find_vocabulary`.
        """
        return finding.choose_vocabulary(self.folder, *self._vocabulary)

    @property
    def vocabulary_file(self) -> str:
        """Path of the file that the tokenizer uses, which is the SentencePiece model of the two."""
        vocab_file, spm_model_file = self.vocabulary
        return spm_model_file or vocab_file or ""

    @functools.cached_property
    def do_lower_case(self) -> bool:
        """Whether to lowercase text; True if this is neither given nor known.

        Logs a warning if it is given and the model is known to be for other text.
        """
        given = self._do_lower_case
        known = self._known_lower_case()
        if given is None:
            return known is not False
        if known not in (None, given):
            logging.warning("do_lower_case=%s, but %s says %s", given, self.folder, known)
        return given

    def _known_lower_case(self) -> bool | None:
        recorded = self.run.record.settings.get(run_record.LOWER_CASE)
        if recorded is not None:
            return bool(recorded)
        flags = finding.read_json_if_there(self.folder, TOKENIZER_CONFIG_FILE)
        if "do_lower_case" in flags:
            return bool(flags["do_lower_case"])
        if "do_lower_case" in self.weights.shapes:  # a variable of TF-Hub modules
            return bool(self.weights.read("do_lower_case"))
        return None

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, whose vocabulary is that of the model; a warning if it probably is not.

        Raises:
            FileNotFoundError: there is no vocabulary.
            ValueError: it is larger than the embedding table, or not the one that the model was
                trained with.
        """
        vocab_file, spm_model_file = self.vocabulary
        has_own_case = is_tokenizer_file(self.vocabulary_file)
        tokenizer = load_tokenizer(
            vocab_file,
            self._do_lower_case if has_own_case else self.do_lower_case,
            spm_model_file,
            max_length=self.config.max_position_embeddings,
        )
        identity = run_record.of_tokenizer(tokenizer, self.vocabulary_file)
        is_known = run_record.check_vocabulary(
            self.run.path, self.run.record, identity.files[run_record.VOCABULARY]
        )
        entries = tokenizer.vocab_size
        vocab_size = self.config.vocab_size
        message = (
            f"{self.vocabulary_file} has {entries} entries, the model of {self.config_file} has "
            f"vocab_size={vocab_size}"
        )
        if entries > vocab_size:
            raise ValueError(f"{message}: they do not match")
        if entries < vocab_size and not is_known:
            logging.warning("%s: make sure that they belong together", message)
        return tokenizer

    @functools.cached_property
    def parts(self) -> set[str]:
        """The parts of the model in the checkpoint, keys of `names.PARTS`."""
        return {part_of(name) for name in self.recognized.entries}

    @property
    def objective(self) -> str:
        """The sentence objective; "none" for masked words without a sentence head.

        Without a record, this is "sop". An objective that is not registered here is "none", with a
        warning: the model is then used without its sentence head.

        Raises:
            ValueError: a file of the run is damaged.
        """
        if "masked-LM head" in self.parts and "sentence head" not in self.parts:
            return NONE
        recorded = self.run.record.settings.get(run_record.OBJECTIVE)
        objective = str(SOP if recorded is None else recorded)
        if objective in OBJECTIVES:
            return objective
        logging.warning(
            "%s: trained with sentence_objective=%s, which is not registered here (only %s): the "
            "sentence head is left out",
            self.run.path,
            objective,
            ", ".join(OBJECTIVES),
        )
        return NONE

    @functools.cached_property
    def run(self) -> RunFolder:
        """The folder with the record of the training."""
        return finding.records_of(self.folder)


def load_pretrained(
    source: ModelSource, task: str, num_labels: int | None = None, **head_arguments: Any
) -> tuple[Any, Tokenizer]:
    """Returns a model with the weights of a source, and its tokenizer.

    The public function is `albert_tf.from_pretrained`, which documents arguments and errors.
    """
    spec = tasks.get(task)
    config = source.config
    tokenizer = source.tokenizer
    recorded = {}  # arguments of the head in training
    if spec.head_settings:
        settings = tasks.resolve(spec.settings)
        recorded = source.run.record.values_for(settings, spec.head_settings)
    head_arguments = {**spec.head_arguments, **recorded, **head_arguments}
    head = tasks.resolve(spec.head)
    if run_record.OBJECTIVE in inspect.signature(head.__init__).parameters:
        head_arguments = {run_record.OBJECTIVE: source.objective, **head_arguments}
    model = _make_model(config, spec, num_labels, source.recognized, head_arguments)
    load_checkpoint(model, source.weights.path)
    return model, tokenizer


def leave_out_pooler(model: Any) -> None:
    """Removes the pooler from a model, for a checkpoint that has none.

    The model's outputs must not depend on it: its encoder has no `pooled_output` afterwards.
    """
    encoder = getattr(model, "encoder", model)
    encoder.pooler, encoder.add_pooling_layer = None, False


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
        raise ValueError(
            f"num_labels={num_labels}: a model for {spec.name} has no labels. Expected another "
            'task, such as task="classification"'
        )
    return head(config, **head_arguments)


def _num_labels(num_labels: int | None, spec: TaskSpec, recognized: families.Recognized) -> int:
    if num_labels is not None:
        return num_labels
    if spec.head_variable not in recognized.entries:
        raise ValueError(
            f"num_labels is required, because the checkpoint has no {spec.name} head "
            f"({spec.head_variable})"
        )
    return recognized.entries[spec.head_variable].shape[0]
