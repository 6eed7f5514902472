"""Runs this library as a contender; started by `contenders.py`.

The engine of the job is "" (TensorFlow) or "openvino", which predicts only.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import contenders
import tensorflow as tf

from albert_tf.export import onnx_openvino
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.finetuning.engine import FineTuning
from albert_tf.model.config import AlbertConfig
from albert_tf.model.optimization import create_optimizer
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import devices
from albert_tf.training.step import StepOptions, TrainStep

MATRIX = 2048


def matmul_flops(dtype: tf.DType) -> float:
    """Returns the floating-point operations per second of a large matmul in this process."""
    x = tf.cast(tf.random.normal((MATRIX, MATRIX)), dtype)
    matmul = tf.function(lambda x: tf.matmul(x, x))
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        matmul(x)
        times.append(time.perf_counter() - begin)
    return 2 * MATRIX**3 / statistics.median(times[1:])


def make_task(job: dict[str, Any], batch: contenders.Batch) -> Any:
    """Returns the task of the job."""
    config = AlbertConfig.from_dict(job["config"])
    if job["task"] == "classification":
        settings = Settings(task_name="lcqmc", data_dir="unused", output_dir="unused")
        no_tokenizer: Any = None  # not needed, because the batches already exist
        classifier = Classifier(settings, config, no_tokenizer, (TASKS["lcqmc"], {}))
        return FineTuning(classifier, {}, tf.distribute.get_strategy())
    return PretrainingTask(config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1])


def make_step(job: dict[str, Any], model: Any, task: Any, signature: Any) -> Any:
    """Returns a function of a batch that runs a training step or a prediction."""
    if not job["training"]:
        return tf.function(
            lambda batch: model(batch, training=False),
            input_signature=[signature],
            jit_compile=job["compiled"] or None,
        )
    optimizer = create_optimizer("adamw", WarmUpPolynomialDecay(1e-4, 10000))
    optimizer.build(list(model.trainable_variables))
    options = StepOptions(jit_compile=job["compiled"], micro_batches=job["micro_batches"])
    return TrainStep(model, task, optimizer, options, batch_signature=signature)


def serve_openvino(job: dict[str, Any]) -> None:
    """Computes the steps of a job of prediction as `load_predictor` does with OpenVINO."""
    batches = contenders.load_batches(job["batches"])
    model = make_task(job, batches[0]).build_model()
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in contenders.INPUTS}
    predict = onnx_openvino.compile_with_openvino(
        lambda batch: {"probabilities": tf.nn.softmax(model(batch, training=False))},
        signature,
        job["precision"],
    )
    for batch in batches:  # the first use of a shape takes longer
        predict(batch)
    contenders.serve(lambda number: predict(batches[number % len(batches)]), job)


def main() -> None:
    """Computes the steps of the job."""
    job = contenders.read_job()
    if job["engine"] == "openvino":
        serve_openvino(job)
        return
    devices.apply_precision(job["precision"])
    arrays = contenders.load_batches(job["batches"])
    task = make_task(job, arrays[0])
    model = task.build_model()
    model.encoder.recompute = job["recompute"]
    batches = [{k: tf.constant(v) for k, v in batch.items()} for batch in arrays]
    # With a single batch, its shape becomes part of the signature.
    shapes = [v.shape if len(batches) == 1 else [None] * v.ndim for v in arrays[0].values()]
    signature = {
        name: tf.TensorSpec(shape, value.dtype)
        for (name, value), shape in zip(arrays[0].items(), shapes, strict=True)
    }
    step = make_step(job, model, task, signature)

    def run(number: int) -> None:
        tf.nest.map_structure(lambda x: x.numpy(), step(batches[number % len(batches)]))

    # Run every shape once, because XLA compiles the kernels between the matmuls for each shape.
    for number in range(len(batches) if len(batches) > 1 else 0):
        run(number)
    contenders.serve(run, job, matmul_flops=matmul_flops(tf.as_dtype(job["precision"])))


if __name__ == "__main__":
    main()
