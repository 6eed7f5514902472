"""The predictor: a callable that applies a trained model to raw text and returns Python values.

    >>> embed = albert_tf.load_predictor("albert_tiny/")
    >>> embed(["The river", "A boat"]).shape
    (2, 12)

`load_predictor` determines from the folder which task the model was trained for. The task says what
the arguments are, and what a result is. A predictor tokenizes texts as the fine-tuning programs do,
sorts them by length, and pads each batch to its longest sequence. It returns results in input
order, with the same numbers as the programs. Results can be serialized as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.checkpoints import saved_model, tasks
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning import registry
from albert_tf.finetuning.batch_runner import BatchRunner
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.dataset import batch_signature
from albert_tf.finetuning.text_task import Result
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.inference.model_task import all_settings, count_outputs, find_predicted_task
from albert_tf.inference.openvino_engine import ConversionError, compile_with_openvino
from albert_tf.inference.pretrained import load_trained
from albert_tf.inference.settings import AUTO, OPENVINO, TENSORFLOW, TOP_K, PredictorSettings
from albert_tf.model.poolings import MEAN, POOLED

if TYPE_CHECKING:
    from typing_extensions import Unpack

# If the folder does not record them.
BATCH_SIZE = 32
PAD_TO_MULTIPLE = 8

# The precision in which a model is built is a global variable of Keras: one is built at a time.
_building = threading.RLock()


class ModelFiles(TypedDict, total=False):
    """Arguments of `from_pretrained` that say where the parts of a model are."""

    config_file: str | None
    vocab_file: str | None
    spm_model_file: str | None
    do_lower_case: bool | None


def choose_engine(engine: str) -> str:
    """Returns "tensorflow" or "openvino" for an engine, which may be "auto"."""
    if engine != AUTO:
        return engine
    has_accelerator = any(map(tf.config.list_logical_devices, ("GPU", "TPU")))
    is_faster = not has_accelerator and importlib.util.find_spec("openvino") is not None
    return OPENVINO if is_faster else TENSORFLOW


def load_predictor(
    folder: str,
    task: str | None = None,
    *,
    batch_size: int | None = None,
    max_seq_length: int | None = None,
    top_k: int = TOP_K,
    pooling: str | None = None,
    engine: str = AUTO,
    **model_files: Unpack[ModelFiles],
) -> Predictor:
    """Returns a predictor for the model in a folder: a callable that takes text.

        classify = albert_tf.load_predictor("lcqmc_model/")
        classify([("你多大了", "你几岁")])
        answer = albert_tf.load_predictor("squad_model/")
        answer("Who was Ekeus?", "Official Ekeus heads for Baghdad.")
        fill_mask = albert_tf.load_predictor("albert_tiny_zh/", "fill_mask")
        fill_mask("北京是[MASK]国的首都")

    >>> embed = albert_tf.load_predictor("albert_tiny/", "embeddings", pooling="pooled")
    >>> embed("The river").shape
    (12,)

    Args:
        folder: the output directory of one of the programs, a released archive, or any other folder
            that `from_pretrained` accepts; a checkpoint in it; or the name of a downloaded model.
        task: "classification", "multi_label_classification", "regression", "token_classification",
            "multiple_choice", "spans", "answerable_spans", "fill_mask", "embeddings", or a
            registered task of your own.
            Default: the task that the model was fine-tuned for; "fill_mask" if the folder is one of
            Hugging Face whose `config.json` says `AlbertForMaskedLM`; or else "embeddings".
        batch_size: number of sequences per batch; defaults to `predict_batch_size` of the run that
            trained the model, or else to 32.
        max_seq_length: maximum sequence length, in tokens; longer texts are truncated or split into
            windows. Defaults to that of training, or else to the model's maximum.
        top_k: maximum number of answers, and of words per mask, to return.
        pooling: how to compute embeddings. "mean" averages the token vectors of the last layer,
            "mean_last_4" those of the last four layers, "pooled" is the pooler's output, "cls" the
            output of the last layer at [CLS], and "max" its largest numbers over the tokens.
            Default: in a folder of sentence-transformers, all that its `modules.json` says, or else
            "mean".
        engine: "tensorflow", "openvino" to run OpenVINO on the CPU, or "auto": OpenVINO if it is
            installed, supports the model, and there is no GPU or TPU.
        **model_files: `config_file`, `vocab_file`, `spm_model_file` and `do_lower_case`, as in
            `from_pretrained`; by default, they are found in the folder.

    Returns:
        A predictor, whose arguments and results depend on the task.

    Raises:
        FileNotFoundError, ValueError: as in `from_pretrained`, or if the model has no head for the
            task or the engine is not installed.
    """
    options = PredictorSettings(
        batch_size=batch_size,
        max_seq_length=max_seq_length,
        top_k=top_k,
        pooling=pooling,
        engine=engine,
    )
    source = ModelSource.open(folder, **model_files)
    return Predictor(source, find_predicted_task(source, task), options)


class Predictor:
    """Applies a model to texts, as its task says.

    Calling it with texts returns the result of each of them, in input order; for a single text, its
    result alone. Programs pass the examples in rows of files to `predict`. Several threads may call
    a predictor at the same time.

    Args:
        source: the model.
        name: name of a task.
        options: the arguments of `load_predictor`.

    Attributes:
        trained: the model, and how it is used.
        task: what is asked of it.
        options: the `options` argument.
        engine: "tensorflow" or "openvino".
        model: the model.
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
    """

    def __init__(self, source: ModelSource, name: str, options: PredictorSettings) -> None:
        spec = registry.get(name)
        is_pooled = name == tasks.EMBEDDINGS and options.pooling == POOLED
        if is_pooled and "pooler" not in source.parts:
            raise ValueError(f"pooling={POOLED!r} needs a pooler, and {source.checkpoint} has none")
        modules = None
        if name == tasks.EMBEDDINGS and options.pooling is None:
            modules = source.sentence_modules
        self.options = options
        self.engine = choose_engine(options.engine)
        self._precision = tf_keras.mixed_precision.global_policy().compute_dtype
        self._load = functools.partial(load_trained, source, name)
        is_tensorflow = self.engine == TENSORFLOW  # other engines cast float32 models themselves
        with (
            _building,
            contextlib.nullcontext() if is_tensorflow else saved_model.float32_models(),
        ):
            self.model, self.tokenizer = self._load()
        logging.info("%s: %s, computed by %s", source.checkpoint, name, self.engine)
        of = spec.settings_class
        names = ("max_seq_length", "pad_to_multiple", "predict_batch_size")
        recorded = source.run.record.values_for(of, names)
        config = self.model.config
        limit = config.max_position_embeddings
        if modules is not None and modules.max_seq_length is not None:
            limit = min(limit, modules.max_seq_length)
        self.max_seq_length = options.max_seq_length or recorded.get("max_seq_length", limit)
        config.check_length(self.max_seq_length)
        settings = None
        if spec.is_fine_tuned:
            values = all_settings(source, of) | {"max_seq_length": self.max_seq_length}
            values.pop("tflite_quantization", None)  # of an export of the run
            settings = of(**values)
        self.trained = TrainedModel(
            task=name,
            settings=settings,
            source=source,
            num_outputs=count_outputs(source, spec),
            max_seq_length=self.max_seq_length,
            top_k=options.top_k,
            pooling=options.pooling or MEAN,
            sentence_modules=modules,
        )
        self.task = spec.make_text_task(self.trained)
        multiple = recorded.get("pad_to_multiple") or PAD_TO_MULTIPLE
        self._padding = self.task.padding(Padding(self.max_seq_length, multiple))
        self._batch_size = options.batch_size or recorded.get("predict_batch_size", BATCH_SIZE)
        self._making_runner = threading.Lock()
        self._runner: BatchRunner | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's outputs; () if they have none."""
        return self.task.labels

    @property
    def num_truncated(self) -> int:
        """Number of texts so far that were too long, and of which only a part was read."""
        return self.task.num_truncated

    def __call__(self, *inputs: object, **named_inputs: object) -> Any:
        """Returns the result of each input, in their order; for a single one, its result alone.

        Args:
            *inputs: the arguments of the task's `parse_call`: for most tasks, a text, a list of
                texts, or a list of pairs of texts.
            **named_inputs: likewise, by name, or by the names of columns in files: `question` and
                `context`; `text` and `text_b`; `passage`, `question` and `options`.

        Raises:
            ValueError: an input is not of the expected type.
            TypeError: the task has no such argument, or needs more.
        """
        if not inputs:
            names = [name for name in self.task.argument_names if name in named_inputs]
            if names == list(self.task.argument_names[: len(named_inputs)]):
                inputs, named_inputs = tuple(named_inputs[name] for name in names), {}
        try:
            inspect.signature(self.task.parse_call).bind(*inputs, **named_inputs)
        except TypeError:
            expected = ", ".join(self.task.argument_names)
            got = ", ".join([*map(repr, inputs), *named_inputs])
            raise TypeError(
                f"a predictor for {self.trained.task} takes {expected}, got {got or 'nothing'}"[
                    :300
                ]
            ) from None
        examples, is_single = self.task.parse_call(*inputs, **named_inputs)
        results = self._results(examples)
        return results[0] if is_single else results

    def predict(self, examples: Sequence[object]) -> Sequence[Result]:
        """Returns the results of examples as JSON objects, in their order."""
        return self.task.as_objects(self._results(examples))

    def _results(self, examples: Sequence[object]) -> Any:
        features = self.task.features_of(examples) if examples else None
        if features is None:
            return self.task.unanswered(examples)
        runner = self._runner_for(features)
        return self.task.results(examples, features, runner.run(features, self._batch_size))

    def _runner_for(self, features: Features) -> BatchRunner:
        """Returns the runner, which the first call makes while those of other threads wait."""
        with self._making_runner:
            if self._runner is None:
                self._runner = self._make_runner(features)
            return self._runner

    def _make_runner(self, features: Features) -> BatchRunner:
        make = functools.partial(
            BatchRunner,
            lambda batch, training: self.task.compute(self.model, batch),
            batch_signature(features),
            outputs=self.task.outputs,
            shows_progress=False,
        )
        if self.engine == TENSORFLOW:
            return make(self._padding)
        unpadded = dataclasses.replace(self._padding, multiple=1)  # nothing is compiled per length
        compile_step = functools.partial(compile_with_openvino, precision=self._precision)
        try:
            return make(unpadded, compile_step=compile_step)
        except ConversionError as error:
            if self.options.engine == OPENVINO:
                raise
            logging.warning("%s. Computing with tensorflow instead", error)
        self.engine = TENSORFLOW
        with _building:
            self.model, _ = self._load()  # in the precision of the global policy
        return make(self._padding)

    def __reduce__(self) -> NoReturn:
        """Refuses to be pickled: what a predictor has compiled belongs to its process.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a predictor cannot be pickled: its compiled model belongs to this process. Call "
            "albert_tf.load_predictor with the same folder in each process"
        )
