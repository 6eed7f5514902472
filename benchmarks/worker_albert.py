"""A contender: this repository. Started by `contenders.py`."""

from __future__ import annotations

import statistics
import time
from typing import Any

import contenders
import tensorflow as tf
import worker_loop

from albert_tf.classification.task import Classifier
from albert_tf.classification.tasks import TASKS
from albert_tf.config import AlbertConfig
from albert_tf.optimization import WarmUpPolynomialDecay, create_optimizer
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import precision
from albert_tf.training.step import StepOptions, TrainStep

MATRIX = 2048


def flops_of_products(dtype: tf.DType) -> float:
    """Rate of a large product of square matrices, in this process."""
    x = tf.cast(tf.random.normal((MATRIX, MATRIX)), dtype)
    product = tf.function(lambda x: tf.matmul(x, x))
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        product(x)
        times.append(time.perf_counter() - begin)
    return 2 * MATRIX**3 / statistics.median(times[1:])


def make_task(job: dict[str, Any], batch: contenders.Batch) -> Any:
    """The task of the job."""
    config = AlbertConfig.from_dict(job["config"])
    if job["task"] == "classification":
        return Classifier(TASKS["lcqmc"], config)
    return PretrainingTask(config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1])


def main() -> None:
    """Computes the steps of the job."""
    job = worker_loop.read_job()
    precision.apply(job["precision"])
    arrays = contenders.load_batches(job["batches"])
    task = make_task(job, arrays[0])
    model = task.build_model()
    model.encoder.recompute = job["recompute"]
    batches = [{k: tf.constant(v) for k, v in batch.items()} for batch in arrays]
    signature = None
    if len({batch["input_ids"].shape for batch in arrays}) > 1:
        signature = {k: tf.TensorSpec([None] * v.ndim, v.dtype) for k, v in arrays[0].items()}
    if job["training"]:
        optimizer = create_optimizer("adamw", WarmUpPolynomialDecay(1e-4, 10000))
        optimizer.build(list(model.trainable_variables))
        options = StepOptions(jit_compile=job["compiled"], micro_batches=job["micro_batches"])
        step: Any = TrainStep(model, task, optimizer, options, batch_signature=signature)
    else:
        step = tf.function(
            lambda batch: model(batch, training=False)["probabilities"],
            input_signature=None if signature is None else [signature],
            jit_compile=job["compiled"] or None,
        )

    def run(number: int) -> None:
        tf.nest.map_structure(lambda x: x.numpy(), step(batches[number % len(batches)]))

    if signature is not None:
        # Every shape once, as XLA compiles what lies between the products for each.
        for number in range(len(batches)):
            run(number)
    rate = flops_of_products(tf.as_dtype(job["precision"]))
    worker_loop.serve(run, product_flops=rate, megabytes_before=worker_loop.megabytes())


if __name__ == "__main__":
    main()
