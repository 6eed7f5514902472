"""Opens the predictor of a folder: `load_predictor`.

TensorFlow is imported for a model of TensorFlow, not for one that was exported for OpenVINO or ONNX
Runtime.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.export.runtimes import AUTO, choose_runtime
from albert_tf.finetuning import registry
from albert_tf.finetuning.batching import Batch, Features, Outputs, Padding
from albert_tf.finetuning.task import TOP_K, AnyTask
from albert_tf.inference.model_task import check_tensorflow, find_predicted_task, open_task
from albert_tf.inference.predictor import BATCH_SIZE, Computation, Engine, Predictor
from albert_tf.inference.settings import PredictorSettings, Settings

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ModelFiles(TypedDict, total=False):
    """Arguments of `from_pretrained` that say where the parts of a model are."""

    config_file: files.PathLike | None
    vocab_file: files.PathLike | None
    spm_model_file: files.PathLike | None
    do_lower_case: bool | None


def load_predictor(
    folder: files.PathLike,
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
            Or a folder that `albert convert` has written for OpenVINO or ONNX Runtime, for which
            TensorFlow is not imported.
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
            installed, supports the model, and there is no GPU or TPU. A file that was exported for
            a runtime is computed by it; "openvino" reads ONNX files as well.
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
    return make_predictor(source, find_predicted_task(source, task), options)


def make_predictor(
    source: ModelSource,
    task: str,
    options: PredictorSettings,
    precision: str = AUTO,
    threads: int | None = None,
) -> Predictor:
    """Returns a predictor for a model.

    Args:
        source: the model.
        task: name of the task.
        options: the arguments of `load_predictor`.
        precision: that of an exported model, as in `ExportedEngine`; for a model of TensorFlow,
            the global policy is that of `using_devices`.
        threads: likewise.

    Raises:
        ValueError, OSError: the model cannot be used; the message says why.
    """
    engine: Engine
    if source.is_exported:
        asked = open_task(source, task, options)
        engine = ExportedEngine(source, asked, options.engine, precision, threads)
    else:
        check_tensorflow(source)
        from albert_tf.inference.tensorflow_engine import TensorFlowEngine

        engine = TensorFlowEngine(source, task, options.engine)
        asked = open_task(source, task, options)  # afterwards: the model has a head for the task
    of = registry.get(task).settings_class
    recorded = source.run.record.values_for(of, ["predict_batch_size"])
    size = options.batch_size or recorded.get("predict_batch_size", BATCH_SIZE)
    return Predictor(asked, engine, size)


class ExportedEngine:
    """Computes a model that `albert convert` has written for OpenVINO or ONNX Runtime.

    Args:
        source: the folder of the model.
        task: the task.
        engine: "openvino", or "auto" for the runtime that the file was written for.
        precision: "float32", "bfloat16", "float16", or "auto", which is float32.
        threads: number of threads; None for one per core.

    Raises:
        ValueError: the runtime is not installed, or cannot compute the model as asked.
    """

    model = None  # of TensorFlow

    def __init__(
        self,
        source: ModelSource,
        task: AnyTask,
        engine: str,
        precision: str = AUTO,
        threads: int | None = None,
    ) -> None:
        path, record = source.checkpoint, source.run.record
        runtime = choose_runtime(path, engine, precision)
        self.name = runtime.name
        exported, asked = record.settings.get("max_seq_length"), task.max_seq_length
        has_fixed_length = task.padding(Padding(asked, 1)).length(1) == asked
        if has_fixed_length and asked != exported:
            raise ValueError(
                f"max_seq_length={asked}: the exported model takes rows of {exported} ids"
            )
        precision = "float32" if precision == AUTO else precision
        self._compute = runtime.open_file(path, record, precision, threads)
        logging.info("%s: %s, computed by %s in %s", path, task.name, self.name, precision)

    def start(self, task: AnyTask, features: Features, is_many: bool) -> Computation:
        """Returns what computes the outputs of the task, for any number of rows and length."""

        def step(batch: Batch) -> Outputs:
            return task.outputs_of(self._compute(batch))

        return Computation(step)


@contextlib.contextmanager
def using_devices(settings: Settings, source: ModelSource) -> Iterator[None]:
    """Context manager with the devices of the settings, for a model of TensorFlow."""
    if source.is_exported:
        yield
        return
    from albert_tf.inference.tensorflow_engine import use_devices

    with use_devices(settings, source):
        yield
