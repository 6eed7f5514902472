"""The public `from_pretrained`: a model and its tokenizer, which can also be called with texts.

    >>> model, tokenizer = albert_tf.from_pretrained("albert_tiny/")
    >>> model(tokenizer(["The river", "A boat"]))["pooled_output"].shape
    TensorShape([2, 12])
    >>> albert_tf.from_pretrained("albert_tiny/").embed(["The river", "A boat"]).shape
    (2, 12)

The predictions are those of `load_predictor`, whose module is imported on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from albert_tf import tasks
from albert_tf.checkpoints.pretrained import load_pretrained
from albert_tf.inference.model_folder import LoadedModelFolder, ModelFolder
from albert_tf.serving.poolings import MEAN
from albert_tf.tokenization import FullTokenizer

if TYPE_CHECKING:
    from albert_tf.inference.predictors import Texts


def from_pretrained(
    folder: str,
    task: str | None = None,
    num_labels: int | None = None,
    *,
    config_file: str | None = None,
    vocab_file: str | None = None,
    spm_model_file: str | None = None,
    do_lower_case: bool | None = None,
    **head_arguments: Any,
) -> Pretrained:
    """Returns a model with the weights from a folder, and its tokenizer.

        >>> model, tokenizer = from_pretrained("albert_tiny/", "classification", num_labels=3)
        >>> tokenizer.decode(tokenizer("The RIVER")["input_ids"][0])
        'the river'

    The pair can also be called with texts, and has methods for each task; see `Pretrained`.

        fill_mask = albert_tf.from_pretrained("albert_tiny_zh/").fill_mask
        fill_mask("北京是[MASK]国的首都")

    Args:
        folder: a folder with a config, weights of any family supported by `load_checkpoint`, and a
            vocabulary; a checkpoint in such a folder; or the name of a model that
            `albert_tf.download` has downloaded. Of a run's checkpoints `model.ckpt-best` is used,
            or else the newest one; of an `--export_dir` the newest export.
        task: None for an `AlbertEncoder`, "pretraining" for an `AlbertForPretraining`, or the task
            of a head: "classification", "regression", "multiple_choice", "spans",
            "answerable_spans", "token_classification", or a registered task of your own.
        num_labels: number of labels; defaults to that of the head in the checkpoint.
        config_file: the config; defaults to the one in the folder.
        vocab_file: a WordPiece vocabulary; defaults to the vocabulary in the folder.
        spm_model_file: a SentencePiece model; defaults to the vocabulary in the folder.
        do_lower_case: whether to lowercase text; defaults to what the folder says (flags of the
            run, Hugging Face's tokenizer_config.json, variable of a TF-Hub module), or else True.
        **head_arguments: arguments of the model's constructor, such as `use_pooled_output=False`,
            which defaults to what the run in the folder was trained with. Such a model depends on
            the length that inputs are padded to, as in training `max_seq_length`.

    Returns:
        The model and the tokenizer. A head that is missing in the checkpoint has random weights,
        and a warning is logged.

    Raises:
        FileNotFoundError: there is no config, checkpoint or vocabulary.
        ValueError: there are several configs, checkpoints or vocabularies; the checkpoint does not
            contain the whole encoder; or the vocabulary is larger than the embedding table or not
            the one that the model was trained with.
    """
    model_files: dict[str, Any] = {
        "config_file": config_file,
        "vocab_file": vocab_file,
        "spm_model_file": spm_model_file,
        "do_lower_case": do_lower_case,
    }
    model, tokenizer = load_pretrained(folder, task, num_labels, **model_files, **head_arguments)
    return Pretrained(model, tokenizer, folder, task, model_files)


class Pretrained(tuple[Any, FullTokenizer]):
    """A pair (model, tokenizer) that can be called with texts.

        classifier = albert_tf.from_pretrained("lcqmc_model/", "classification")
        model, tokenizer = classifier
        classifier([("你多大了", "你几岁")])

    A method for the task of `model` uses `model` with its current weights, so that it can be
    called during and after training, and `embed` uses the encoder of `model`. A method for another
    task loads its model from the folder at the first call. Arguments and results are those of the
    predictors, and `load_predictor` has more options.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        folder: the folder that they were loaded from.
        task: the task of the model, as in `from_pretrained`.
        model_files: the arguments `config_file`, `vocab_file`, `spm_model_file` and
            `do_lower_case` of `from_pretrained`.

    Attributes:
        model: the `model` argument.
        tokenizer: the `tokenizer` argument.
        folder: the `folder` argument.
        task: the `task` argument.
    """

    def __new__(cls, model: Any, tokenizer: FullTokenizer, *_: Any) -> Pretrained:
        """Creates the tuple, which has no constructor with arguments."""
        return super().__new__(cls, (model, tokenizer))

    def __init__(
        self,
        model: Any,
        tokenizer: FullTokenizer,
        folder: str,
        task: str | None,
        model_files: dict[str, Any],
    ) -> None:
        self.model, self.tokenizer, self.folder, self.task = model, tokenizer, folder, task
        self._model_files = model_files
        self._predictors: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *inputs: Any) -> Any:
        """Returns the predictions of the model's task.

        If the model is an encoder, the task is the one that the folder was fine-tuned for, or else
        embeddings.

        Args:
            *inputs: what the method for the task takes: texts for `classify`, `tag`, `fill_mask`
                and `embed`, (question, context) for `answer`, and (passage, question, options)
                for `choose`.
        """
        return self._predictor(self._own_task or self._folder_task)(*inputs)

    def classify(self, texts: Texts, pairs: str | Sequence[str] | None = None) -> Any:
        """Returns labels with probabilities, or the scores of a regression: `TextClassifier`."""
        task = self._choose_task(tasks.CLASSIFICATION, tasks.REGRESSION)
        return self._predictor(task)(texts, pairs)

    def tag(self, texts: str | Sequence[str | Sequence[str]]) -> Any:
        """Returns labels of the tokens of texts, and the spans that they mark: `TokenTagger`."""
        return self._predictor(self._choose_task(tasks.TOKEN_CLASSIFICATION))(texts)

    def choose(self, passage: str, question: str, options: Sequence[str]) -> dict[str, Any]:
        """Returns the option that answers a question about a passage: `ChoiceAnswerer`."""
        task = self._choose_task(tasks.MULTIPLE_CHOICE)
        return self._predictor(task)(passage, question, options)

    def answer(self, question: str, context: str, top_k: int = 5) -> dict[str, Any]:
        """Returns the spans of a context that answer a question: `SpanAnswerer`."""
        task = self._choose_task(tasks.SPANS, tasks.ANSWERABLE_SPANS)
        return self._predictor(task, top_k=top_k)(question, context)

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5) -> Any:
        """Returns the best words for each "[MASK]" in texts: `MaskFiller`."""
        return self._predictor(tasks.FILL_MASK, top_k=top_k)(texts)

    def embed(
        self,
        texts: Texts,
        pairs: str | Sequence[str] | None = None,
        pooling: str = MEAN,
    ) -> NDArray[np.float32]:
        """Returns embeddings of texts, float32 [N, H], or [H] for a single string: `Embedder`."""
        return self._predictor(tasks.EMBEDDINGS, pooling=pooling)(texts, pairs)

    @property
    def _own_task(self) -> str | None:
        """The task of the model, under the name of its row; None for an encoder."""
        return None if self.task is None else tasks.get(self.task).name

    @functools.cached_property
    def _folder_task(self) -> str:
        """The task that the model in the folder was fine-tuned for, or embeddings."""
        return ModelFolder(self.folder).find_task()

    def _choose_task(self, *names: str) -> str:
        """Returns the first of the tasks that the model or its folder is for."""
        if self._own_task in names:
            return self._own_task
        if self._folder_task in names:
            return self._folder_task
        raise ValueError(
            f"{self.folder} has a model for {self._folder_task}, not for {' or '.join(names)}: "
            "use the folder of a model that was fine-tuned for it"
        )

    def _predictor(self, task: str, **options: Any) -> Any:
        """Returns the predictor for a task, which is made once."""
        from albert_tf.inference import predictors

        key = (task, *options.items())
        if key not in self._predictors:
            is_own = task in (self._own_task, tasks.EMBEDDINGS)
            found = LoadedModelFolder(self.folder, *self) if is_own else ModelFolder(self.folder)
            self._predictors[key] = predictors.make_predictor(
                found, found.find_task(task), predictors.Options(**options), self._model_files
            )
        return self._predictors[key]
