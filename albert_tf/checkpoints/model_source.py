"""A model in a folder of any origin: its config, vocabulary, weights and record, found there."""

from __future__ import annotations

import functools

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import families, finding, record_comparison, run_record
from albert_tf.checkpoints.containers import WeightFile, open_weights
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import part_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.huggingface_tokenizer import (
    TOKENIZER_CONFIG_FILE,
    is_tokenizer_file,
    load_tokenizer,
)
from albert_tf.model.included_configs import config_file
from albert_tf.model.objectives import NONE, SOP
from albert_tf.model.tokenization import Tokenizer


class ModelSource:
    """A model in a folder of any origin, whose parts are found and read when they are asked for.

    Attributes:
        checkpoint: path of the checkpoint.
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
        """Finds a checkpoint, and opens it when it is asked for.

        Args:
            path: as in `find_checkpoint`.
            config_file: path of the config, or name of one of this package; None to look for it.
            vocab_file: path of the WordPiece vocabulary; None to look for a vocabulary.
            spm_model_file: path of the SentencePiece model, likewise.
            do_lower_case: whether the vocabulary is uncased; None for what is recorded, or True.

        Raises:
            FileNotFoundError, ValueError: see `finding.find_checkpoint`.
        """
        self.checkpoint = finding.find_checkpoint(path)
        self.folder = finding.folder_of(path)
        self._config_file = config_file
        self._do_lower_case = do_lower_case
        self._vocabulary = vocab_file, spm_model_file

    @functools.cached_property
    def weights(self) -> WeightFile:
        """The checkpoint, of which only names and shapes have been read.

        Raises:
            ValueError: it is damaged.
        """
        return open_weights(self.checkpoint)

    @functools.cached_property
    def recognized(self) -> families.Recognized:
        """The family of the checkpoint."""
        return families.recognize(self.weights.shapes)

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
        return finding.find_vocabulary(self.folder, *self._vocabulary)

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
        name = run_record.LOWER_CASE
        flags = finding.read_json_if_there(self.folder, TOKENIZER_CONFIG_FILE)
        known = self.run.record.settings.get(name, flags.get(name))
        is_module = files.exists(files.join(self.folder, finding.SAVED_MODEL))
        if known is None and is_module and name in self.weights.shapes:
            known = self.weights.read(name)  # a variable of TF-Hub modules
        given = self._do_lower_case
        if given is None:
            return known is None or bool(known)
        if known is not None and bool(known) != given:
            logging.warning("do_lower_case=%s, but %s says %s", given, self.folder, bool(known))
        return given

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
        is_known = record_comparison.check_vocabulary(
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
        """The parts of the model in the checkpoint, keys of `weight_names.PARTS`."""
        return {part_of(name) for name in self.recognized.entries}

    @property
    def objective(self) -> str:
        """The sentence objective; "none" for masked words without a sentence head.

        Without a record, this is "sop".

        Raises:
            ValueError: a file of the run is damaged.
        """
        if "masked-LM head" in self.parts and "sentence head" not in self.parts:
            return NONE
        recorded = self.run.record.settings.get(run_record.OBJECTIVE)
        return str(SOP if recorded is None else recorded)

    @functools.cached_property
    def run(self) -> RunFolder:
        """The folder with the record of the training."""
        return finding.records_of(self.folder)
