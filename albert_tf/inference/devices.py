"""The devices and the precision of a prediction with TensorFlow."""

from __future__ import annotations

import contextlib

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.inference.settings import Settings
from albert_tf.training.devices import Devices, open_devices
from albert_tf.training.settings import DeviceSettings


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
