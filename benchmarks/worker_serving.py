"""Runs this library as a contender that predicts from texts; started by `contenders.py`.

The engines are "tensorflow" and "openvino" of `load_predictor`, and "saved_model", the signature
`texts` of an exported model, called with all texts at once. In bfloat16, TensorFlow converts its
graph, as TensorFlow Serving does with --mixed_precision=bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import contenders
import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers the operations of exported models
import tf_keras

import albert_tf

BATCH_SIZE = 32

Pairs = list[tuple[str, str]]


def make_server(job: dict[str, Any]) -> Callable[[Pairs], Any]:
    """Returns a function that predicts the probabilities for pairs of texts."""
    if job["engine"] == "saved_model":
        is_bfloat16 = job["precision"] == "bfloat16"
        tf.config.optimizer.set_experimental_options(
            {"auto_mixed_precision_onednn_bfloat16": is_bfloat16}
        )
        loaded = tf.saved_model.load(job["folder"])  # signatures do not keep the weights alive

        def answer(pairs: Pairs) -> Any:
            first, second = zip(*pairs, strict=True)
            outputs = loaded.signatures["texts"](
                text_a=tf.constant(first), text_b=tf.constant(second)
            )
            return outputs["probabilities"].numpy().tolist()

        return answer
    policy = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[job["precision"]]
    tf_keras.mixed_precision.set_global_policy(policy)
    predictor = albert_tf.load_predictor(
        job["folder"], batch_size=BATCH_SIZE, max_seq_length=128, engine=job["engine"]
    )
    return lambda pairs: [list(row["probabilities"].values()) for row in predictor(pairs)]


def main() -> None:
    """Runs the job."""
    job = contenders.read_job()
    contenders.serve_texts(make_server(job), job, versions={"tensorflow": tf.__version__})


if __name__ == "__main__":
    main()
