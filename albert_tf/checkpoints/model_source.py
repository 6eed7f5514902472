"""A model's config, vocabulary, weights and record: found in a folder of any origin, or given.

A run asks a `ModelSource` for the model that it starts with, a predictor and the converter for the
one that they use. Its parts are found and read when they are asked for; only opening a TensorFlow
checkpoint imports TensorFlow.
"""

from __future__ import annotations

import functools

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import families, run_record
from albert_tf.checkpoints.containers import WeightFile, open_weights
from albert_tf.checkpoints.model_folder import SAVED_MODEL, ModelFolder, ModelPath, is_exported
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord
from albert_tf.checkpoints.sentence_modules import (
    SentenceModules,
    exported_modules,
    read_modules,
)
from albert_tf.checkpoints.weight_names import part_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.config import config_file as path_of_config
from albert_tf.model.objectives import NONE, SOP
from albert_tf.model.tokenization import (
    TOKENIZER_CONFIG_FILE,
    Tokenizer,
    is_tokenizer_file,
    load_tokenizer,
)


class ModelSource:
    """A model in a folder; see `open` for one that exists.

    Args:
        place: where the weights are; the folder of the run if they are random.
        trained: the folder with the record of the weights' training; None if they are random.
        config_file: path of the config, or name of one of this package; None to look for it.
        vocab_file: path of the WordPiece vocabulary; None to look for a vocabulary.
        spm_model_file: path of the SentencePiece model, likewise.
        do_lower_case: whether to lowercase text; None for what is known of the model, or else True.

    Attributes:
        place, trained: the arguments.
    """

    def __init__(
        self,
        place: ModelPath,
        trained: RunFolder | None,
        config_file: str | None = None,
        vocab_file: str | None = None,
        spm_model_file: str | None = None,
        do_lower_case: bool | None = None,
    ) -> None:
        self.place = place
        self.trained = trained
        self._config_file = config_file
        self._vocabulary = vocab_file, spm_model_file
        self._do_lower_case = do_lower_case

    @classmethod
    def open(
        cls,
        path: files.PathLike,
        config_file: files.PathLike | None = None,
        vocab_file: files.PathLike | None = None,
        spm_model_file: files.PathLike | None = None,
        do_lower_case: bool | None = None,
    ) -> ModelSource:
        """Returns a model whose checkpoint exists, by its path as in `find_checkpoint`.

        The other arguments are those of the class.

        Raises:
            FileNotFoundError, ValueError: see `find_checkpoint`.
        """
        place = ModelPath(files.path_text(path, "folder"))
        _ = place.checkpoint
        parts = {
            "config_file": config_file,
            "vocab_file": vocab_file,
            "spm_model_file": spm_model_file,
        }
        given = {name: files.path_text(at, name) for name, at in parts.items() if at is not None}
        return cls(place, place.folder.records, **given, do_lower_case=do_lower_case)

    @property
    def checkpoint(self) -> str:
        """Path of the checkpoint.

        Raises:
            FileNotFoundError, ValueError: see `find_checkpoint`.
        """
        return self.place.checkpoint

    @property
    def folder(self) -> str:
        """The folder with the config and the vocabulary."""
        return self.place.folder.path

    @functools.cached_property
    def sentence_modules(self) -> SentenceModules | None:
        """How a folder of sentence-transformers computes embeddings; None for any other folder.

        Raises:
            ValueError: in another way than is supported.
        """
        if self.is_exported:
            return exported_modules(self.run.record)
        return read_modules(self.place.outer)

    @property
    def is_of_sentence_transformers(self) -> bool:
        """Whether the folder lists modules, of which the model is the first."""
        return self.place.outer.modules is not None

    @functools.cached_property
    def run(self) -> RunFolder:
        """The folder with the record of the training, in which nothing may be recorded."""
        return self.trained or RunFolder(self.folder)

    @functools.cached_property
    def weights(self) -> WeightFile:
        """The checkpoint, of which only names and shapes have been read.

        Raises:
            ValueError: it is damaged.
        """
        return open_weights(self.place)

    @property
    def is_exported(self) -> bool:
        """Whether the model was exported for another runtime, and has no weights to load."""
        return is_exported(self.checkpoint)

    @functools.cached_property
    def recognized(self) -> families.Recognized:
        """The family of the checkpoint."""
        return families.recognize(self.weights.shapes)

    @functools.cached_property
    def parts(self) -> set[str]:
        """The parts of the model in the checkpoint, keys of `weight_names.PARTS`."""
        return {part_of(name) for name in self.recognized.entries}

    @property
    def has_pooler(self) -> bool:
        """Whether the pooled output of [CLS] can be computed; not known of exported models."""
        return self.is_exported or "pooler" in self.parts

    @functools.cached_property
    def config_file(self) -> str:
        """Path of the config.

        Raises:
            FileNotFoundError, ValueError: see `ModelFolder.config_file`.
        """
        if self._config_file:
            return path_of_config(self._config_file)
        return self.place.folder.config_file

    @functools.cached_property
    def config(self) -> AlbertConfig:
        """The config: Google's, albert_zh's or Hugging Face's.

        Raises:
            FileNotFoundError, ValueError: there is no config, or it is invalid.
        """
        return AlbertConfig.for_model(self.config_file)

    @functools.cached_property
    def vocabulary(self) -> tuple[str | None, str | None]:
        """Paths of vocabulary or tokenizer, and of the SentencePiece model; one may be None.

        Raises:
            FileNotFoundError, ValueError: see `ModelFolder.vocabulary`.
        """
        return self._vocabulary if any(self._vocabulary) else self.place.folder.vocabulary

    @property
    def vocabulary_file(self) -> str:
        """Path of the file that the tokenizer uses, which is the SentencePiece model of the two."""
        vocab_file, spm_model_file = self.vocabulary
        return spm_model_file or vocab_file or ""

    @property
    def do_lower_case(self) -> bool:
        """Whether to lowercase text: as given, or else as in training, or else True."""
        if self._do_lower_case is not None:
            return self._do_lower_case
        return self._trained_case is not False

    @functools.cached_property
    def _trained_case(self) -> bool | None:
        """Whether text was lowercased in training; None if that is not known."""
        if self.trained is None:
            return None
        if self._records_case:
            return bool(self.trained.record.settings[run_record.LOWER_CASE])
        own = self.trained.path if self.trained.checkpoint else None
        folder = ModelFolder(own) if own else self.place.folder_of_checkpoint
        flags = files.read_json_if_there(folder.file(TOKENIZER_CONFIG_FILE))
        known = flags.get(run_record.LOWER_CASE)
        is_module = files.exists(folder.file(SAVED_MODEL))
        if known is None and is_module and run_record.LOWER_CASE in self.weights.shapes:
            known = self.weights.read(run_record.LOWER_CASE)  # a variable of TF-Hub modules
        return None if known is None else bool(known)

    @property
    def _records_case(self) -> bool:
        return self.run.record.settings.get(run_record.LOWER_CASE) is not None

    def _warn_of_case(self) -> None:
        """Warns if the given case is not that of the training."""
        given, known = self._do_lower_case, self._trained_case
        if given is not None and known is not None and known != given:
            logging.warning("do_lower_case=%s, but %s says %s", given, self.folder, known)

    @functools.cached_property
    def unchecked_tokenizer(self) -> Tokenizer:
        """The tokenizer, not compared with that of the training: a run compares its whole record.

        The tokenizer of a Hugging Face folder knows the case itself. For a vocabulary, a warning is
        logged if the given case is not that of the weights, and no record says which it is.

        Raises:
            FileNotFoundError: there is no vocabulary.
            ValueError: it is damaged.
        """
        vocab_file, spm_model_file = self.vocabulary
        do_lower_case = self._do_lower_case
        if not is_tokenizer_file(self.vocabulary_file):
            do_lower_case = self.do_lower_case
            if not self._records_case:
                self._warn_of_case()
        positions = self.config.max_position_embeddings
        return load_tokenizer(vocab_file, do_lower_case, spm_model_file, max_length=positions)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, whose vocabulary is that of the model; a warning if it probably is not.

        Raises:
            FileNotFoundError: there is no vocabulary.
            ValueError: it is larger than the embedding table, or not the one that the model was
                trained with.
        """
        tokenizer = self.unchecked_tokenizer
        if self._records_case and not is_tokenizer_file(self.vocabulary_file):
            self._warn_of_case()
        identity = run_record.of_tokenizer(tokenizer, self.vocabulary_file)
        vocabulary = identity.files[run_record.VOCABULARY]
        is_known = self._check_vocabulary(vocabulary)
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

    def _check_vocabulary(self, vocabulary: FileRecord) -> bool:
        """Compares a vocabulary with the one that the model was trained with.

        Returns:
            Whether the vocabulary of the training is known.

        Raises:
            ValueError: the model was trained with another vocabulary. The message names both.
        """
        expected = self.run.record.files.get(run_record.VOCABULARY)
        if expected is not None and expected.digest != vocabulary.digest:
            raise ValueError(
                f"the model in {self.run.path} was trained with another vocabulary: {expected}; "
                f"now it is {vocabulary}. Use the vocabulary of the training."
            )
        return expected is not None

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
