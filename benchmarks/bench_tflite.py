r"""Compares the size, accuracy and latency of TFLite classifiers with those of their SavedModel.

    python benchmarks/bench_tflite.py --task_name=SST-2 --data_dir=glue --run_dir=work/sst

exports the best checkpoint of a run of run_classifier.py with weights in float32, float16 and int8.
It then predicts the first rows of the dev set, padded to max_seq_length, with each file and with
the SavedModel, and measures single rows, alternating between the models. Prints a JSON line for
each: bytes, accuracy, largest difference of a probability from the SavedModel's, and milliseconds
per row.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import reporting
import tensorflow as tf
from absl import app, flags, logging

from albert_tf import classification, files
from albert_tf.classification.program import make_task
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import model_files
from albert_tf.finetuning.run import read_tokenizer
from albert_tf.serving import tflite

FLAGS = flags.FLAGS
flags.DEFINE_string("run_dir", None, "Output directory of run_classifier.py.", required=True)
flags.DEFINE_string("task_name", None, "Task of the run.", required=True)
flags.DEFINE_string("data_dir", None, "Folder with the data of the task.", required=True)
flags.DEFINE_integer("rows", 500, "Number of rows of the dev set to predict.")
flags.DEFINE_integer("timed_rows", 100, "Number of these rows to measure the time of.")
flags.DEFINE_integer("threads", 2, "Number of threads of TFLite, and per TensorFlow operation.")
flags.DEFINE_string("results", "", reporting.RESULTS_HELP)

Batch = dict[str, np.ndarray]
Predict = Callable[[Batch], np.ndarray]


def make_settings(**changes: str) -> classification.Settings:
    """Returns the settings of the run, with changes."""
    return model_files.complete(
        classification.Settings.make(
            task_name=FLAGS.task_name,
            data_dir=FLAGS.data_dir,
            output_dir=FLAGS.run_dir,
            **changes,
        )
    )


def read_rows() -> tuple[list[Batch], np.ndarray]:
    """Returns rows of the dev set, as batches [1, S], and their labels."""
    settings = make_settings(export_dir=tempfile.gettempdir())
    config = AlbertConfig.from_json_file(settings.albert_config_file or "")
    task = make_task(settings, config, read_tokenizer(settings, config))
    features = task.make_features(task.read("dev"), "dev")
    length = settings.max_seq_length
    rows = [features.batch(np.array([i]), length) for i in range(min(FLAGS.rows, len(features)))]
    labels = np.concatenate([row.pop("label_ids") for row in rows])
    return rows, labels


def export_all(folder: str) -> dict[str, tuple[int, Predict]]:
    """Exports the run in all formats; returns name → size in bytes, function to predict a row."""
    exported: dict[str, tuple[int, Predict]] = {}
    for quantization in (tflite.NONE, tflite.FLOAT16, tflite.INT8):
        export_dir = os.path.join(folder, quantization)
        settings = make_settings(export_dir=export_dir, tflite_quantization=quantization)
        classification.run(settings)
        if not exported:
            (version,) = (name for name in files.list_directory(export_dir) if name.isdigit())
            exported["SavedModel"] = open_saved_model(os.path.join(export_dir, version))
        path = os.path.join(export_dir, tflite.FILE)
        name = "float32" if quantization == tflite.NONE else quantization
        exported[f"TFLite {name}"] = files.file_size(path), open_tflite(path)
    return exported


def open_saved_model(path: str) -> tuple[int, Predict]:
    """Returns the size of the weights of a SavedModel, and a function to predict a row."""
    model = tf.saved_model.load(path)
    signature = model.signatures["tensors"]

    def predict(row: Batch) -> np.ndarray:
        _ = model  # the signature does not keep the variables of the model alive
        return signature(**{n: tf.constant(x) for n, x in row.items()})["probabilities"].numpy()

    variables = os.path.join(path, "variables")
    sizes = [
        files.file_size(os.path.join(variables, name)) for name in files.list_directory(variables)
    ]
    return sum(sizes), predict


def open_tflite(path: str) -> Predict:
    """Returns a function to predict a row with a TFLite file."""
    interpreter = tf.lite.Interpreter(model_path=path, num_threads=FLAGS.threads)
    runner = interpreter.get_signature_runner("serving_default")
    return lambda row: runner(**row)["probabilities"]


def main(arguments: list[str]) -> None:
    """Exports the models, measures them and prints the results."""
    if arguments[1:]:
        raise app.UsageError(f"unexpected argument: {arguments[1]}")
    logging.set_verbosity(logging.WARNING)
    tf.config.threading.set_intra_op_parallelism_threads(FLAGS.threads)
    rows, labels = read_rows()
    with tempfile.TemporaryDirectory() as folder:
        engines = export_all(folder)
        measured = {
            name: np.concatenate([predict(row) for row in rows])
            for name, (_, predict) in engines.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        for row in rows[: FLAGS.timed_rows]:
            for name, (_, predict) in engines.items():
                start = time.perf_counter()
                predict(row)
                seconds[name].append(time.perf_counter() - start)
    lines = [
        {
            "form": name,
            "bytes": size,
            "accuracy": float(np.mean(measured[name].argmax(axis=1) == labels)),
            "largest_difference": float(np.abs(measured[name] - measured["SavedModel"]).max()),
            "median_ms": round(1000 * float(np.median(seconds[name])), 2),
            "p90_ms": round(1000 * float(np.quantile(seconds[name], 0.9)), 2),
        }
        for name, (size, _) in engines.items()
    ]
    for line in lines:
        print(json.dumps(line))
    reporting.write_table(FLAGS.results, lines)


if __name__ == "__main__":
    app.run(main)
