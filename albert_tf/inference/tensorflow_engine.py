"""Computes a model of TensorFlow for a predictor, or has OpenVINO compute it."""

from __future__ import annotations

import contextlib
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
from albert_tf.export.runtimes import AUTO, OPENVINO, TENSORFLOW
from albert_tf.finetuning import registry
from albert_tf.finetuning.batching import Features
from albert_tf.finetuning.engine import batch_signature, only, tensorflow_step
from albert_tf.finetuning.task import AnyTask
from albert_tf.inference.predictor import Computation
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
    """Returns "tensorflow" or "openvino" for an engine, which may be "auto"."""
    if engine != AUTO:
        return engine
    is_faster = not has_accelerator() and importlib.util.find_spec("openvino") is not None
    return OPENVINO if is_faster else TENSORFLOW


class TensorFlowEngine:
    """Computes a model of TensorFlow, or has OpenVINO compute it.

    Args:
        source: the model.
        task: name of the task.
        engine: "tensorflow", "openvino" or "auto"; see `load_predictor`. With "auto", TensorFlow
            computes a model that OpenVINO turns out not to support.

    Attributes:
        name: "tensorflow" or "openvino".
        model: the model.
    """

    def __init__(self, source: ModelSource, task: str, engine: str) -> None:
        self.name = choose_engine(engine)
        self._source = source
        self._needs_openvino = engine == OPENVINO
        self._precision = tf_keras.mixed_precision.global_policy().compute_dtype
        is_tensorflow = self.name == TENSORFLOW  # other engines cast float32 models themselves
        with (
            _building,
            contextlib.nullcontext() if is_tensorflow else saved_model.float32_models(),
        ):
            self.model, _ = load_trained(source, task)
        text = "%s: %s, computed by %s in %s"
        logging.info(text, source.checkpoint, task, self.name, self._precision)

    def start(self, task: AnyTask, features: Features) -> Computation:
        """Returns what computes the outputs of the task, for batches of any length.

        On CPUs, TensorFlow compiles parts of the model once for each length, only for many rows:
        few would wait for that longer than for their answers.

        Raises:
            ConversionError: OpenVINO was asked for, and does not support the model.
        """
        outputs, signature = task.outputs, batch_signature(features)

        def compute(batch: dict[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
            return task.compute(self.model, batch)

        if self.name == OPENVINO:
            try:
                step = compile_with_openvino(only(compute, outputs), signature, self._precision)
            except ConversionError as error:
                if self._needs_openvino:
                    raise
                logging.warning("%s. Computing with tensorflow instead", error)
            else:
                return Computation(step)
            self.name = TENSORFLOW
            with _building:
                # In the precision of the global policy.
                self.model = copy_trained(self.model, self._source, task.name)
        of = registry.get(task.name).settings_class
        recorded = self._source.run.record.values_for(of, ["pad_to_multiple"])
        multiple = recorded.get("pad_to_multiple") or PAD_TO_MULTIPLE
        compiled = Computation(tensorflow_step(compute, signature, outputs), multiple)
        if has_accelerator():
            return compiled
        plain = tensorflow_step(compute, signature, outputs, is_compiled=False)
        return Computation(plain, for_many=compiled)


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
