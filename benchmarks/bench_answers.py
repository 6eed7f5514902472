"""Compares the answers of exported models with those of the model, and times the first of each.

    python benchmarks/bench_answers.py --config=albert_base

Models with random weights from fixed seeds classify pairs, find answers, tag tokens and embed
texts: lines of MRPC and SQuAD from the data next to the repository. Each model is converted by
`albert convert`; its numbers are compared where the texts of an answer are the same. The first
answer is that of `albert predict` with one text, a process each, in turns: seconds of the clock and
of the processor, modules imported, and whether TensorFlow is one of them. Prints a JSON line for
each model and format. Without a package for a format, or without the data, it is skipped with a
reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import reporting
import tensorflow as tf
import tf_keras
from absl import logging
from contenders import SHARED

import albert_tf
from albert_tf.export import tflite
from albert_tf.finetuning.batching import Batch, BatchRunner, Outputs, Padding
from albert_tf.inference import convert
from albert_tf.inference.predictor import Predictor
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.tokenization import FullTokenizer
from albert_tf.tensorflow_releases import set_random_seed

SEED = 5
MAX_SEQ_LENGTH = 128
VOCABULARY = os.path.join(SHARED, "vocab", "30k-clean.model")
PAIRS = os.path.join(SHARED, "data", "glue", "MRPC", "dev.tsv")
QUESTIONS = os.path.join(SHARED, "data", "squad", "dev-v1.1-part.json")
# Format → package that must be installed.
FORMATS = {"openvino": "openvino", "onnx": "tf2onnx", "tflite": "tensorflow"}
# Runs a command line of `albert`, and reports the modules that were imported.
REPORT = """
import atexit, sys
from albert_tf.cli.programs import main
loaded = lambda: f"modules {len(sys.modules)} {'tensorflow' in sys.modules}"
atexit.register(lambda: print(loaded(), file=sys.stderr))
main()
"""


@dataclasses.dataclass(frozen=True)
class Task:
    """A task to compare.

    Attributes:
        head: class of the model.
        arguments: its arguments.
        labels: names of its outputs, if it has any.
        inputs: the arguments of a call, given the lines.
        flags: those of a single answer.
    """

    head: Callable[..., tf_keras.layers.Layer]
    arguments: dict[str, Any]
    labels: Sequence[str] | None
    inputs: Callable[[int], tuple[Sequence[Any], ...]]
    flags: Sequence[str]


def read_pairs(count: int) -> tuple[list[str], list[str]]:
    """Returns pairs of MRPC's dev set."""
    with open(PAIRS, encoding="utf-8") as stream:
        rows = [line.rstrip("\n").split("\t") for line in stream][1 : count + 1]
    return [row[3] for row in rows], [row[4] for row in rows]


def read_questions(count: int) -> tuple[list[str], list[str]]:
    """Returns questions of SQuAD, and their contexts."""
    with open(QUESTIONS, encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    pairs = [(qa["question"], row["context"]) for row in paragraphs for qa in row["qas"]]
    return [pair[0] for pair in pairs[:count]], [pair[1] for pair in pairs[:count]]


PAIR = ("--text=He is old.", "--text_b=He is not young.")
TEXT = ("--text=Official Ekeus heads for Baghdad.",)
TASKS = {
    "classification": Task(
        albert_tf.AlbertForClassification, {"num_labels": 2}, ("no", "yes"), read_pairs, PAIR
    ),
    "spans": Task(
        albert_tf.AlbertForSpans,
        {},
        None,
        read_questions,
        ("--question=Who heads for Baghdad?", "--context=Official Ekeus heads for Baghdad."),
    ),
    "tags": Task(
        albert_tf.AlbertForTokenClassification,
        {"num_labels": 3},
        ("B-LOC", "I-LOC", "O"),
        lambda count: read_pairs(count)[:1],
        TEXT,
    ),
    "embeddings": Task(
        albert_tf.AlbertEncoder, {}, None, lambda count: read_pairs(count)[:1], TEXT
    ),
}


def write_model(task: Task, config: AlbertConfig, folder: str) -> None:
    """Writes a model with random weights."""
    tokenizer = FullTokenizer(spm_model_file=VOCABULARY)
    set_random_seed(SEED)
    config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    model = task.head(config, **task.arguments)
    model(tf.ones((1, 5), tf.int32))
    for variable in model.variables:  # larger than new weights: answers differ from each other
        variable.assign(2.0 * variable)
    albert_tf.save_pretrained(model, folder, tokenizer, task.labels)


def answers_of_tflite(path: str, model: Predictor, inputs: Sequence[Any]) -> Any:
    """Returns the answers of a TFLite file, with the predictor's features and results."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
        runner = tf.lite.Interpreter(path).get_signature_runner()
    names = runner.get_input_details()
    task = model.task

    def step(batch: Batch) -> Outputs:
        found: Outputs = runner(**{name: batch[name] for name in names})
        is_own = task.outputs.keys() <= found.keys()  # as in TFLite files of spans
        return found if is_own else task.outputs_of(found)

    examples, _ = task.parse_call(*inputs)
    features = task.features_of(examples)
    assert features is not None
    padding = Padding(MAX_SEQ_LENGTH, MAX_SEQ_LENGTH)
    rows = BatchRunner(step, padding, task.outputs, shows_progress=False)
    return task.results(examples, features, rows.run(features, 1))


def parts_of(answer: Any) -> Iterator[str | float]:
    """Yields the texts and numbers of an answer, in their order."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, (list, tuple, np.ndarray)):
        for part in answer:
            yield from parts_of(part)
    else:
        yield answer if isinstance(answer, str) else float(answer)


def compare_answers(answers: Sequence[Any], expected: Sequence[Any]) -> dict[str, float]:
    """Returns how many answers have other texts, and the largest difference in the others.

    Texts change places where two have the same score but for rounding.
    """
    largest, other_texts = 0.0, 0
    for pair in zip(answers, expected, strict=True):
        found, wanted = (list(parts_of(answer)) for answer in pair)
        if [x for x in found if isinstance(x, str)] != [x for x in wanted if isinstance(x, str)]:
            other_texts += 1
            continue
        numbers = ([x for x in parts if isinstance(x, float)] for parts in (found, wanted))
        largest = max([largest, *(abs(x - y) for x, y in zip(*numbers, strict=True))])
    return {"largest_difference": largest, "other_texts": other_texts}


def time_first_answer(folder: str, flags: Sequence[str]) -> dict[str, float]:
    """Returns seconds from the command to its end, those of the processor, and the modules."""
    command = ["albert", "predict", f"--model_dir={folder}", *flags]
    code = f"import sys; sys.argv = {command!r}\n{REPORT}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    *_, modules, has_tensorflow = done.stderr.split()
    return {
        "seconds": seconds,
        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "modules": int(modules),
        "tensorflow": has_tensorflow == "True",
    }


def median_of(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns the medians of several runs."""
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}


def compare(name: str, folder: str, rows: int, turns: int) -> list[dict[str, Any]]:
    """Returns a row for the model and each format."""
    task = TASKS[name]
    model = albert_tf.load_predictor(folder, max_seq_length=MAX_SEQ_LENGTH, engine="tensorflow")
    inputs = task.inputs(rows)
    expected = model(*inputs)
    folders = {"the model": folder}
    found = {}
    for form, package in FORMATS.items():
        if importlib.util.find_spec(package) is None:
            logging.warning("skipped: %s needs %s", form, package)
            continue
        output = folders[form] = f"{folder}_{form}"
        if not os.path.exists(output):
            list(convert.run(convert.Settings(folder, output, form, max_seq_length=MAX_SEQ_LENGTH)))
        if form == "tflite":
            path = os.path.join(folders.pop(form), tflite.TFLITE_FILE)
            answers = answers_of_tflite(path, model, inputs)
        else:
            answers = albert_tf.load_predictor(output)(*inputs)
        found[form] = compare_answers(answers, expected)
    runs: dict[str, list[dict[str, float]]] = {form: [] for form in folders}
    for _ in range(turns):
        for form, path in folders.items():
            runs[form].append(time_first_answer(path, task.flags))
    timed = {form: median_of(of_form) for form, of_form in runs.items() if of_form}
    return [
        {"task": name, "format": form, **found.get(form, {}), **timed.get(form, {})}
        for form in ("the model", *found)
    ]


def main() -> None:
    """Compares all tasks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="albert_base")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5, help="first answers of each; 0 for none")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--folder", default="", help="where to keep the models, to time them again")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    logging.set_verbosity(logging.WARNING)
    if not os.path.isdir(SHARED):
        sys.exit(f"skipped: no data at {SHARED}")
    config = AlbertConfig.from_json_file(config_file(flags.config))
    table: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in flags.tasks.split(","):
            folder = os.path.join(flags.folder or temporary, name)
            if not os.path.exists(folder):
                write_model(TASKS[name], config, folder)
            rows = compare(name, folder, flags.rows, flags.turns)
            for row in rows:
                reporting.print_line("answers", config=flags.config, rows=flags.rows, **row)
            table += rows
    reporting.write_table(flags.results, table)


if __name__ == "__main__":
    main()
