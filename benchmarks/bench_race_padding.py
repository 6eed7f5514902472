"""What is saved by padding RACE's questions to the longest of their batch only, not to 512.

    python benchmarks/bench_race_padding.py

The questions are real ones, from the reference data beside the repository. The model has one
narrow layer of ALBERT's. The ways alternate in one run, the best of two rounds counts. Prints a
JSON line: milliseconds a question, and how many times faster than padding everything to 512.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.finetuning import batching, prediction
from albert_tf.finetuning.batching import Padding, TrainingOrder
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.race import task as race
from albert_tf.race.reading import read_race
from albert_tf.tokenization import FullTokenizer

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARED = os.path.join(ROOT, "../shared")
MAX_SEQ_LENGTH, MAX_QA_LENGTH = 512, 128
BATCH_SIZE = 8  # questions, as the official program's --eval_batch_size
STEPS, ROUNDS = 8, 2
FULL, CUT = Padding(MAX_SEQ_LENGTH, MAX_SEQ_LENGTH), Padding(MAX_SEQ_LENGTH, 8)
CONFIG = AlbertConfig(
    vocab_size=30000,
    hidden_size=256,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=1024,
)


def read_features(split: str) -> TokenSequences:
    """Features of the questions of a split."""
    tokenizer = FullTokenizer(spm_model_file=os.path.join(SHARED, "vocab", "30k-clean.model"))
    data = read_race(os.path.join(SHARED, "data", "race"), split)
    return race.make_features(data, tokenizer, MAX_SEQ_LENGTH, MAX_QA_LENGTH)


def best_times(ways: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Seconds of each way, the best of several rounds: the first ones include the compilation."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, call in ways.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: min(seconds) for name, seconds in times.items()}


def report(times: dict[str, float], questions: int) -> dict[str, dict[str, float]]:
    """Milliseconds a question, and how many times faster than the first way."""
    first = next(iter(times.values()))
    return {
        name: {
            "ms_per_question": round(1000 * seconds / questions, 1),
            "times_faster": round(first / seconds, 2),
        }
        for name, seconds in times.items()
    }


def main() -> None:
    """Measures evaluation and training."""
    if not os.path.isdir(SHARED):
        sys.exit(f"skipped: no reference data at {SHARED}")
    dev, train = read_features("dev"), read_features("train")
    task = race.MultipleChoice(CONFIG)
    model = task.build_model()

    def predict(padding: Padding) -> None:
        predictors[padding].predict()

    predictors = {
        padding: prediction.Predictor(model, dev, BATCH_SIZE, padding, race.OUTPUTS)
        for padding in (FULL, CUT)
    }
    evaluation = best_times(
        {
            "all to 512": functools.partial(predict, FULL),
            "to the longest, sorted": functools.partial(predict, CUT),
        }
    )

    @tf.function(input_signature=[prediction.batch_signature(train)])
    def gradients(batch):
        with tf.GradientTape() as tape:
            loss, _ = task.loss(model(batch, training=True), batch)
        return tape.gradient(loss, model.trainable_variables)

    def learn(padding: Padding, batches_to_sort: int) -> None:
        order = TrainingOrder(BATCH_SIZE, batches_to_sort=batches_to_sort)
        for batch in itertools.islice(batching.training_batches(train, order, padding), STEPS):
            gradients(batch)

    training = best_times(
        {
            "all to 512": functools.partial(learn, FULL, 1),
            "to the longest": functools.partial(learn, CUT, 1),
            "to the longest, 8 batches sorted": functools.partial(learn, CUT, 8),
        }
    )
    result = {
        "benchmark": "race_padding",
        "mean_length": {
            "dev": round(float(np.mean(dev.lengths)), 1),
            "train (middle only)": round(float(np.mean(train.lengths)), 1),
        },
        "evaluation": report(evaluation, len(dev)),
        "training": report(training, STEPS * BATCH_SIZE),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
