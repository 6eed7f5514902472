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
import hashlib
import importlib.util
import logging as python_logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging
from numpy.typing import NDArray

from albert_tf.checkpoints import saved_model
from albert_tf.finetuning import registry
from albert_tf.finetuning.batching import BatchRunner, Features, Padding
from albert_tf.finetuning.task import Result, TextTask, TrainedModel
from albert_tf.inference import AUTO, OPENVINO, TENSORFLOW, TOP_K, PredictorSettings
from albert_tf.inference.inputs import ModelFolder
from albert_tf.inference.pretrained import load_trained
from albert_tf.model import ops
from albert_tf.model.config import MEAN, POOLED

# Runs TensorFlow functions with OpenVINO, which is faster than TensorFlow on CPUs.
#
# The package openvino is an extra: pip install 'albert-tf2[openvino]'.

Arrays = dict[str, NDArray[Any]]
OPENVINO_DEVICE = "CPU"
# Precision in this library → OpenVINO's name. It only applies to matmuls and ops that follow them.
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

_UNSUPPORTED = "-- No conversion rule found"  # start of the useful line in OpenVINO's message


class ConversionError(ValueError):
    """OpenVINO cannot run a function that TensorFlow can."""


@ops.plain()
def compile_with_openvino(
    step: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
    signature: Mapping[str, tf.TensorSpec],
    precision: str = "float32",
) -> Callable[[Mapping[str, NDArray[Any]]], Arrays]:
    """Returns a function that computes the same as `step` with OpenVINO on the CPU.

    The number of threads is TensorFlow's intra-op parallelism, if that is set.

    Args:
        step: function from a batch, name → tensor, to outputs, name → tensor. Its model must have
            been built in float32; see `saved_model.float32_models`.
        signature: name → spec of the tensors in a batch; dimensions may be unknown.
        precision: precision of the computation: "float32", "bfloat16" or "float16".

    Returns:
        A function from a batch, name → array, to outputs, name → array.

    Raises:
        ConversionError: OpenVINO does not support an operation of `step`.
    """
    concrete = saved_model.Signature(signature, step).function.get_concrete_function()
    try:
        compiled = _compile(concrete, precision)
    except Exception as error:  # of several types, from C++
        lines = [line.strip() for line in str(error).splitlines()] or [repr(error)]
        reason = next((line for line in lines if line.startswith(_UNSUPPORTED)), lines[0])
        raise ConversionError(
            "engine=openvino: OpenVINO cannot run this model, use engine=tensorflow: "
            f"{reason.lstrip('- ')}"
        ) from error
    request = compiled.create_infer_request()
    inputs = [port.get_any_name() for port in compiled.inputs]  # unused inputs are removed
    outputs = {name: compiled.output(name) for name in concrete.structured_outputs}

    def run(batch: Mapping[str, NDArray[Any]]) -> Arrays:
        results = request.infer({name: batch[name] for name in inputs})
        return {name: results[port] for name, port in outputs.items()}

    return run


def _compile(concrete: Any, precision: str) -> Any:
    """Returns a concrete function of TensorFlow as an `openvino.CompiledModel`."""
    hints = {
        "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch
    }
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if threads:
        hints["INFERENCE_NUM_THREADS"] = str(threads)
    runtime = _runtime()
    import openvino

    # Shared, the weights would be read where TensorFlow may have freed them.
    model = openvino.convert_model(concrete, share_weights=False)
    share_weights(model)
    return runtime.compile_model(model, OPENVINO_DEVICE, hints)


@functools.cache
def _runtime() -> Any:
    """Returns OpenVINO's runtime, which is never released.

    Released in another thread than it was made in, it would leave that thread an alternate signal
    stack without memory: the next signal, such as that of Ctrl-C, would end the process.
    """
    # The package would fork the process to report each import and conversion to Google Analytics.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    handlers = list(python_logging.root.handlers)
    import openvino

    python_logging.root.handlers[:] = handlers  # the import removes that of absl
    return openvino.Core()


def share_weights(model: Any) -> None:
    """Merges equal constants of an `openvino.Model`, as saving and loading it does.

    The conversion transposes the weights of matmuls, and so copies the shared weights once for each
    layer. Unless they are merged, they do not fit into the processor's caches: one row then takes
    the base model up to twice as long in bfloat16.

    Args:
        model: the model, which is changed.
    """
    kept: dict[tuple[Any, ...], Any] = {}
    for node in model.get_ordered_ops():
        if node.get_type_name() == "Constant":
            key = (
                node.get_element_type().get_type_name(),
                tuple(node.get_output_shape(0)),
                hashlib.sha256(node.data).digest(),
            )
            first = kept.setdefault(key, node)
            if first is not node:
                node.output(0).replace(first.output(0))


# If the folder does not record them.
BATCH_SIZE = 32
PAD_TO_MULTIPLE = 8


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
    pooling: str = MEAN,
    engine: str = AUTO,
    **model_files: Any,
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
            Default: the task that the model was fine-tuned for, or else "embeddings".
        batch_size: number of sequences per batch; defaults to `predict_batch_size` of the run that
            trained the model, or else to 32.
        max_seq_length: maximum sequence length, in tokens; longer texts are truncated or split into
            windows. Defaults to that of training, or else to the model's maximum.
        top_k: maximum number of answers, and of words per mask, to return.
        pooling: how to compute embeddings. "mean" averages the token vectors of the last layer,
            "mean_last_4" those of the last four layers, and "pooled" is the pooler's output.
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
    model_folder = ModelFolder(folder, **model_files)
    return Predictor(model_folder, model_folder.find_task(task), options)


class Predictor:
    """Applies a model to texts, as its task says.

    Calling it with texts returns the result of each of them, in input order; for a single text, its
    result alone. Programs pass the examples in rows of files to `predict`.

    Args:
        model_folder: the folder of the model.
        name: name of a task.
        options: the arguments of `load_predictor`.

    Attributes:
        task: the task.
        options: the `options` argument.
        engine: "tensorflow" or "openvino".
        model: the model.
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
    """

    def __init__(self, model_folder: ModelFolder, name: str, options: PredictorSettings) -> None:
        spec = registry.get(name)
        task = registry.resolve(spec.task)
        is_pooled = name == registry.EMBEDDINGS and options.pooling == POOLED
        if is_pooled and "pooler" not in model_folder.parts:
            raise ValueError(
                f"pooling={POOLED!r} needs a pooler, and {model_folder.checkpoint} has none"
            )
        self.options = options
        self.engine = choose_engine(options.engine)
        self._precision = tf_keras.mixed_precision.global_policy().compute_dtype
        self._load = functools.partial(load_trained, model_folder, name)
        is_tensorflow = self.engine == TENSORFLOW  # other engines cast float32 models themselves
        with contextlib.nullcontext() if is_tensorflow else saved_model.float32_models():
            self.model, self.tokenizer = self._load()
        logging.info("%s: %s, computed by %s", model_folder.checkpoint, name, self.engine)
        of = registry.resolve(spec.settings)
        names = ("max_seq_length", "pad_to_multiple", "predict_batch_size")
        recorded = model_folder.run.record.values_for(of, names)
        config = self.model.config
        limit = config.max_position_embeddings
        self.max_seq_length = options.max_seq_length or recorded.get("max_seq_length", limit)
        config.check_length(self.max_seq_length)
        settings = None
        if spec.is_fine_tuned:
            values = model_folder.all_settings(of) | {"max_seq_length": self.max_seq_length}
            values.pop("tflite_quantization", None)  # of an export of the run
            settings = of(**values)
        trained = TrainedModel(
            task=name,
            settings=settings,
            config=config,
            tokenizer=self.tokenizer,
            run=model_folder.run,
            num_outputs=model_folder.count_outputs(spec),
            max_seq_length=self.max_seq_length,
            top_k=options.top_k,
            pooling=options.pooling,
        )
        self.task: TextTask = task.of_trained(trained)
        multiple = recorded.get("pad_to_multiple") or PAD_TO_MULTIPLE
        self._padding = self.task.padding(Padding(self.max_seq_length, multiple))
        self._batch_size = options.batch_size or recorded.get("predict_batch_size", BATCH_SIZE)
        self._runner: BatchRunner | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's outputs; () if they have none."""
        return self.task.labels

    @property
    def num_truncated(self) -> int:
        """Number of texts so far that were too long, and of which only a part was read."""
        return self.task.num_truncated

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Returns the result of each input, in their order; for a single one, its result alone.

        Args:
            *inputs: the arguments of the task's `parse_call`: for most tasks, a text, a list of
                texts, or a list of pairs of texts.
            **named_inputs: likewise, by name.

        Raises:
            ValueError: an input is not of the expected type.
        """
        examples, is_single = self.task.parse_call(*inputs, **named_inputs)
        results = self._results(examples)
        return results[0] if is_single else results

    def predict(self, examples: Sequence[Any]) -> Sequence[Result]:
        """Returns the results of examples as JSON objects, in their order."""
        return self.task.as_objects(self._results(examples))

    def _results(self, examples: Sequence[Any]) -> Any:
        features = self.task.features_of(examples) if examples else None
        if features is None:
            return self.task.unanswered(examples)
        if self._runner is None:
            self._runner = self._make_runner(features)
        self._runner.features = features
        return self.task.results(examples, features, self._runner.run())

    def _make_runner(self, features: Features) -> BatchRunner:
        make = functools.partial(
            BatchRunner,
            lambda batch, training: self.task.compute(self.model, batch),
            features,
            self._batch_size,
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
        self.model, _ = self._load()  # in the precision of the global policy
        return make(self._padding)


def export_saved_model(
    folder: str, export_dir: str, task: str | None = None, max_seq_length: int | None = None
) -> str:
    """Writes a SavedModel of the model in a folder, as `--export_dir` of the programs does.

    Its signatures take serialized examples, tensors and, to classify or embed texts, raw strings
    (docs/serving.md). Its weights are float32. TensorFlow Serving can serve it, and
    `albert predict --model_dir` and `load_predictor` accept its folder.

    >>> model, tokenizer = albert_tf.from_pretrained(
    ...     "albert_tiny/", "classification", num_labels=2
    ... )
    >>> albert_tf.save_pretrained(model, "topics", tokenizer, labels=["sports", "politics"])
    >>> served = tf.saved_model.load(albert_tf.export_saved_model("topics", "export"))
    >>> text = tf.constant(["The match ended 2:1."])
    >>> answer = served.signatures["texts"](text_a=text, text_b=tf.constant([""]))
    >>> answer["probabilities"].shape
    TensorShape([1, 2])

    Args:
        folder: a folder that `load_predictor` accepts, such as one written by `save_pretrained`.
        export_dir: parent folder of the exports, which is created if needed.
        task: as in `load_predictor`. A model that was not fine-tuned is exported for embeddings.
        max_seq_length: sequence length of serialized examples, and maximum sequence length of
            texts, in tokens. Defaults to that of training, or else to the model's maximum.

    Returns:
        The folder of the export, `<export_dir>/<Unix time>`.

    Raises:
        FileNotFoundError: the folder has no checkpoint, config or vocabulary.
        ValueError: the model has no head for the task; `max_seq_length` exceeds the model's
            maximum, or leaves no room for the context after a question of the longest length; or
            `export_dir` cannot be written to.
    """
    model_folder = ModelFolder(folder)
    name = model_folder.find_task(task)
    model_files = saved_model.model_files(
        model_folder.config_file, model_folder.vocabulary_file, model_folder.run.record
    )
    with saved_model.float32_models():
        if not registry.get(name).is_fine_tuned:
            has_masked_lm = "masked-LM head" in model_folder.parts
            model, tokenizer = load_trained(
                model_folder, registry.PRETRAINING if has_masked_lm else registry.EMBEDDINGS
            )
            length = max_seq_length or model.config.max_position_embeddings
            poolings = saved_model.poolings_of(model_folder.parts)
            encoder = getattr(model, "encoder", model)
            exported = saved_model.embeddings_export(encoder, tokenizer, length, poolings)
        else:
            options = PredictorSettings(max_seq_length=max_seq_length)
            predictor = Predictor(model_folder, name, options)
            model = predictor.model
            fine_tuned: Any = predictor.task  # a FineTuningTask
            exported = fine_tuned.make_export(model, predictor.max_seq_length, model_folder.run)
        return saved_model.export(export_dir, model.variables, exported, model_files)
