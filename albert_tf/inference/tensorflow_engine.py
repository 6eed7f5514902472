"""Computes a model of TensorFlow for a predictor, or has OpenVINO compute it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Mapping

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.export import saved_model
from albert_tf.export.onnx_openvino import ConversionError, compile_with_openvino
from albert_tf.export.runtimes import AUTO, OPENVINO, TENSORFLOW, Step
from albert_tf.finetuning import registry
from albert_tf.finetuning.batching import Features
from albert_tf.finetuning.engine import batch_signature, only, tensorflow_step
from albert_tf.finetuning.task import AnyTask
from albert_tf.inference.predictor import MANY_ROWS, Computation
from albert_tf.inference.pretrained import copy_trained, load_trained
from albert_tf.inference.settings import Settings
from albert_tf.training.devices import Devices, open_devices
from albert_tf.training.settings import DeviceSettings

PAD_TO_MULTIPLE = 8  # if the folder does not record it

# The precision in which a model is built is a global variable of Keras: one is built at a time.
_building = threading.RLock()


def has_accelerator() -> bool:
    """Returns whether TensorFlow computes on a GPU or TPU."""
    return any(map(tf.config.list_logical_devices, ("GPU", "TPU")))


def choose_engine(engine: str) -> str:
    """Returns what computes calls of many rows: "tensorflow" or "openvino".

    Args:
        engine: one of these, or "auto".
    """
    if engine != AUTO:
        return engine
    is_faster = not has_accelerator() and importlib.util.find_spec("openvino") is not None
    return OPENVINO if is_faster else TENSORFLOW


class TensorFlowEngine:
    """Computes a model of TensorFlow, or has OpenVINO compute it.

    On CPUs, neither OpenVINO nor what XLA compiles pays for few rows: they would wait for it longer
    than for their answers.

    Args:
        source: the model.
        task: name of the task.
        engine: "tensorflow", "openvino" or "auto"; see `load_predictor`. With "auto", TensorFlow
            computes few rows, and a model that OpenVINO turns out not to support.

    Attributes:
        name: "tensorflow" or "openvino".
        model: the model.
    """

    def __init__(self, source: ModelSource, task: str, engine: str) -> None:
        self._source = source
        self._for_many = choose_engine(engine)
        self._needs_openvino = engine == OPENVINO
        self._by_openvino: Step | None = None  # what computes a batch, once it is converted
        self._precision = tf_keras.mixed_precision.global_policy().compute_dtype
        self.name = OPENVINO if self._needs_openvino else TENSORFLOW
        with _building, self._converted_precision(self._needs_openvino):
            self.model, _ = load_trained(source, task)
        what = f"{self.name} in {self._precision}"
        if self._for_many != self.name:
            what += f", calls of {MANY_ROWS} rows and more by {self._for_many}"
        logging.info("%s: %s, computed by %s", source.checkpoint, task, what)

    def start(self, task: AnyTask, features: Features, is_many: bool) -> Computation:
        """Returns what computes the outputs of the task, for batches of any length.

        On CPUs, TensorFlow compiles parts of the model once for each length, for many rows.

        Raises:
            ConversionError: OpenVINO was asked for, and does not support the model.
        """
        signature = batch_signature(features)
        if self._needs_openvino or (is_many and self._for_many == OPENVINO):
            by_openvino = self._convert(task, signature)
            if by_openvino is not None:
                return Computation(by_openvino)
        of = registry.get(task.name).settings_class
        recorded = self._source.run.record.values_for(of, ["pad_to_multiple"])
        multiple = recorded.get("pad_to_multiple") or PAD_TO_MULTIPLE
        is_compiled = is_many or has_accelerator()
        compute = functools.partial(task.compute, self.model)
        step = tensorflow_step(compute, signature, task.outputs, is_compiled)
        return Computation(step, multiple if is_compiled else 1)

    def _convert(self, task: AnyTask, signature: Mapping[str, tf.TensorSpec]) -> Step | None:
        """Returns what computes a batch with OpenVINO, or None if it cannot and need not."""
        if self._by_openvino is not None:
            return self._by_openvino
        model = self.model
        if not self._needs_openvino and self._precision != "float32":
            with _building, self._converted_precision(True):
                model = copy_trained(model, self._source, task.name)
        compute = only(functools.partial(task.compute, model), task.outputs)
        try:
            self._by_openvino = compile_with_openvino(compute, signature, self._precision)
        except ConversionError as error:
            if self._needs_openvino:
                raise
            logging.warning("%s. Computing with tensorflow instead", error)
        else:
            self.name = OPENVINO
        return self._by_openvino

    @staticmethod
    def _converted_precision(is_converted: bool) -> contextlib.AbstractContextManager[None]:
        """Context manager to build models in: OpenVINO casts those in float32 itself."""
        return saved_model.float32_models() if is_converted else contextlib.nullcontext()


def use_devices(
    settings: Settings, source: ModelSource
) -> contextlib.AbstractContextManager[Devices]:
    """Returns `open_devices`; precision auto is float32 if the model was trained in it."""
    trained_in = source.run.record.settings.get(run_record.PRECISION)
    is_as_trained = settings.precision == "auto" and trained_in == "float32"
    devices = DeviceSettings(
        distribution="one_device",
        precision="float32" if is_as_trained else settings.precision,
        threads=settings.threads,
    )
    return open_devices(devices, "the model was trained in it" if is_as_trained else None)
