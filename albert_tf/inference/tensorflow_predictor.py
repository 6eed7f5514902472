"""The predictor of a model of TensorFlow, which OpenVINO may compute in its place."""

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
from albert_tf.finetuning.batching import BatchRunner, Features
from albert_tf.finetuning.engine import batch_signature, only, tensorflow_step
from albert_tf.inference.model_task import open_task
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.pretrained import copy_trained, load_trained
from albert_tf.inference.settings import PredictorSettings, Settings
from albert_tf.training.devices import Devices, open_devices
from albert_tf.training.settings import DeviceSettings

PAD_TO_MULTIPLE = 8  # if the folder does not record it

# The precision in which a model is built is a global variable of Keras: one is built at a time.
_building = threading.RLock()


def choose_engine(engine: str) -> str:
    """Returns "tensorflow" or "openvino" for an engine, which may be "auto"."""
    if engine != AUTO:
        return engine
    has_accelerator = any(map(tf.config.list_logical_devices, ("GPU", "TPU")))
    is_faster = not has_accelerator and importlib.util.find_spec("openvino") is not None
    return OPENVINO if is_faster else TENSORFLOW


class TensorFlowPredictor(Predictor):
    """Applies a model of TensorFlow.

    Args:
        source: the model.
        name: name of a task.
        options: the arguments of `load_predictor`.

    Attributes, besides those of `Predictor`:
        model: the model.
    """

    def __init__(self, source: ModelSource, name: str, options: PredictorSettings) -> None:
        engine = choose_engine(options.engine)
        self._precision = tf_keras.mixed_precision.global_policy().compute_dtype
        is_tensorflow = engine == TENSORFLOW  # other engines cast float32 models themselves
        with (
            _building,
            contextlib.nullcontext() if is_tensorflow else saved_model.float32_models(),
        ):
            self.model, _ = load_trained(source, name)
        super().__init__(source, name, open_task(source, name, options), options, engine)
        text = "%s: %s, computed by %s in %s"
        logging.info(text, source.checkpoint, name, engine, self._precision)

    def _make_runner(self, features: Features) -> BatchRunner:
        outputs = self.task.outputs
        signature = batch_signature(features)

        def compute(batch: dict[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
            return self.task.compute(self.model, batch)

        if self.engine == OPENVINO:
            try:
                step = compile_with_openvino(only(compute, outputs), signature, self._precision)
            except ConversionError as error:
                if self.options.engine == OPENVINO:
                    raise
                logging.warning("%s. Computing with tensorflow instead", error)
            else:  # nothing is compiled for a length
                return BatchRunner(step, self._padding(1), outputs, shows_progress=False)
            self.engine = TENSORFLOW
            with _building:
                # In the precision of the global policy.
                self.model = copy_trained(self.model, self.source, self._name)
        step = tensorflow_step(compute, signature, outputs)
        padding = self._padding(self._recorded.get("pad_to_multiple") or PAD_TO_MULTIPLE)
        return BatchRunner(step, padding, outputs, shows_progress=False)


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
