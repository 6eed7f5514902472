"""Compares exported models with the model: their answers, their sizes and their times.

    python benchmarks/bench_answers.py --config=albert_base
    python benchmarks/bench_answers.py --models=work/sst2:texts.jsonl,work/squad:questions.jsonl \
        --forms="onnx; onnx int8; tflite int8" --turns=0 --shapes=1x16,32x128 --threads=1

Models with random weights from fixed seeds classify pairs, find answers, tag tokens and embed
texts: lines of MRPC and SQuAD from the data next to the repository. Or models are folders, each
with a file of JSON lines to answer. Each model is converted by `albert convert` to each format and
precision: how many answers are other ones than the model's, and how far their numbers are.

The first answer is that of `albert predict` with one text, a process each, in turns: seconds of the
clock and of the processor, modules imported, and whether TensorFlow is one of them. `--shapes` adds
the seconds of the processor for so many texts of so many tokens, the least of some turns, in each
of which every file answers them once; TFLite files are written for each length, and take one row at
a time. Prints a JSON line for each model and format. Without a package for a format, or without the
data, it is skipped with a reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
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

import reporting
import tensorflow as tf
import tf_keras
from absl import logging
from contenders import SHARED

import albert_tf
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.export.quantizations import FLOAT16, INT8, NONE
from albert_tf.export.runtimes import AUTO, TENSORFLOW
from albert_tf.export.tflite import TFLITE_FILE
from albert_tf.finetuning.batching import Batch, BatchRunner, Outputs, Padding
from albert_tf.inference import convert
from albert_tf.inference.model_task import find_predicted_task
from albert_tf.inference.opening import make_predictor
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.settings import PredictorSettings
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.tokenization import FullTokenizer
from albert_tf.tensorflow_releases import set_random_seed

SEED = 5
MAX_SEQ_LENGTH = 128
MODEL = "the model"
WORD = "river"  # a piece of its own in the vocabularies
VOCABULARY = os.path.join(SHARED, "vocab", "30k-clean.model")
PAIRS = os.path.join(SHARED, "data", "glue", "MRPC", "dev.tsv")
QUESTIONS = os.path.join(SHARED, "data", "squad", "dev-v1.1-part.json")
PACKAGES = {"openvino": "openvino", "onnx": "tf2onnx", "tflite": "tensorflow"}  # what writes it
FORMS = {
    "openvino": ("openvino", NONE),
    "onnx": ("onnx", NONE),
    "onnx int8": ("onnx", INT8),
    "tflite": ("tflite", NONE),
    "tflite float16": ("tflite", FLOAT16),
    "tflite int8": ("tflite", INT8),
}
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


def open_predictor(folder: str, length: int | None, threads: int | None) -> Predictor:
    """Returns the predictor of a folder, by TensorFlow or by what the folder was exported for."""
    source = ModelSource.open(folder)
    engine = AUTO if source.is_exported else TENSORFLOW
    options = PredictorSettings(max_seq_length=length, engine=engine)
    return make_predictor(source, find_predicted_task(source, None), options, threads=threads)


class LitePredictor:
    """Answers by a TFLite file, with the features and the results of a predictor.

    Args:
        path: the file.
        model: the predictor of the model.
        threads: number of threads; None for the default of TensorFlow Lite.
    """

    def __init__(self, path: str, model: Predictor, threads: int | None) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
            interpreter = tf.lite.Interpreter(path, num_threads=threads)
        self._runner = interpreter.get_signature_runner()
        self._inputs = self._runner.get_input_details()
        self._task = model.task

    def _step(self, batch: Batch) -> Outputs:
        found: Outputs = self._runner(**{name: batch[name] for name in self._inputs})
        is_own = self._task.outputs.keys() <= found.keys()  # as in TFLite files of spans
        return found if is_own else self._task.outputs_of(found)

    def predict(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Returns the results of examples as JSON objects, in their order."""
        task = self._task
        features = task.features_of(examples)
        assert features is not None
        length = int(self._inputs["input_ids"]["shape"][-1])
        rows = BatchRunner(self._step, Padding(length, length), task.outputs, shows_progress=False)
        return task.as_objects(task.results(examples, features, rows.run(features, 1)))


def write_form(name: str, folder: str, length: int) -> str:
    """Returns the folder of a model in a format and precision, which is written if it is not there.

    Args:
        name: a key of `FORMS`.
        folder: the model.
        length: that of the rows of a TFLite file.
    """
    output_format, quantization = FORMS[name]
    of_length = f"_{length}" if output_format == "tflite" else ""
    output = f"{folder}_{name.replace(' ', '_')}{of_length}"
    if not os.path.exists(output):
        asked = convert.Settings(
            folder, output, output_format, quantization=quantization, max_seq_length=length
        )
        for line in convert.run(asked):
            logging.warning("%s: %s", output, line)
    return output


def open_form(
    name: str, folder: str, model: Predictor, threads: int | None
) -> Predictor | LitePredictor:
    """Returns what answers like a model in a format and precision."""
    output = write_form(name, folder, model.max_seq_length)
    path = os.path.join(output, TFLITE_FILE)
    if os.path.exists(path):
        return LitePredictor(path, model, threads)
    return open_predictor(output, model.max_seq_length, threads)


def answer_of(result: Any) -> Any:
    """Returns what a result says, without scores and alternatives."""
    said = ("label", "labels", "answer", "begin")
    return {name: result[name] for name in said if name in result}


def numbers_of(result: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Yields the numbers of a result with their places.

    The place of an alternative answer is its text, since two of almost the same score may change
    places.
    """
    if isinstance(result, dict):
        for name in result.keys() - {"begin", "end", "prediction", "spans"}:
            yield from numbers_of(result[name], (*place, name))
    elif isinstance(result, list):
        for rank, value in enumerate(result):
            own = (value["answer"], value["begin"]) if isinstance(value, dict) else rank
            yield from numbers_of(value, (*place, own))
    elif not isinstance(result, str):
        yield place, float(result)


def compare_answers(answers: Sequence[Any], expected: Sequence[Any]) -> dict[str, float]:
    """Returns how many answers are other ones, and the largest difference of a number.

    The score of an answer is compared with that of the same answer only.
    """
    largest, others = 0.0, 0
    for found, wanted in zip(answers, expected, strict=True):
        is_other = answer_of(found) != answer_of(wanted)
        others += is_other
        numbers = dict(numbers_of(found))
        for place, number in numbers_of(wanted):
            if place in numbers and not (is_other and place == ("score",)):
                largest = max(largest, abs(numbers[place] - number))
    return {"largest_difference": largest, "other_answers": others}


def compare_forms(
    folder: str,
    model: Predictor,
    examples: Sequence[Any],
    forms: Sequence[str],
    threads: int | None,
) -> dict[str, dict[str, Any]]:
    """Returns form → how far its answers are from the model's, and its megabytes."""
    expected = model.predict(examples)
    found: dict[str, dict[str, Any]] = {}
    for name in forms:
        try:
            answers = open_form(name, folder, model, threads).predict(examples)
        except ValueError as error:  # multiple choice as TFLite, or too far from the model
            found[name] = {"refused": str(error)}
            continue
        weights = max(os.scandir(write_form(name, folder, model.max_seq_length)), key=size_of)
        found[name] = compare_answers(answers, expected) | {"megabytes": size_of(weights) / 1e6}
    return found


def size_of(entry: os.DirEntry[str]) -> int:
    """Returns the bytes of a file."""
    return entry.stat().st_size


def time_shapes(
    folder: str, shapes: Sequence[str], forms: Sequence[str], turns: int, threads: int | None
) -> dict[str, dict[str, float]]:
    """Returns form → shape → seconds of the processor; the model is one of the forms."""
    seconds: dict[str, dict[str, float]] = {name: {} for name in (MODEL, *forms)}
    for shape in shapes:
        rows, length = map(int, shape.split("x"))
        model = open_predictor(folder, length, threads)
        opened = {name: open_form(name, folder, model, threads) for name in forms}
        examples, _ = model.task.parse_call([" ".join([WORD] * (length - 2))] * rows)
        for turn in range(turns + 1):
            for name, predictor in {MODEL: model, **opened}.items():
                begin = time.process_time()
                predictor.predict(examples)
                taken = time.process_time() - begin
                if turn:  # the first one is not counted
                    seconds[name][shape] = min(taken, seconds[name].get(shape, taken))
    return seconds


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


def time_first_answers(
    folder: str, task: Task, forms: Sequence[str], turns: int
) -> dict[str, dict[str, float]]:
    """Returns form → medians of the first answers; the model is one of the forms."""
    folders = {MODEL: folder} | {
        name: write_form(name, folder, MAX_SEQ_LENGTH)
        for name in forms
        if FORMS[name][0] != "tflite"
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in folders}
    for _ in range(turns):
        for name, path in folders.items():
            runs[name].append(time_first_answer(path, task.flags))
    return {name: median_of(of_form) for name, of_form in runs.items() if of_form}


def measure(name: str, folder: str, path: str, flags: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns a row for a model and one for each format.

    Args:
        name: the name of the model, a key of `TASKS` if it has random weights.
        folder: its folder.
        path: file of JSON lines to answer; "" for those of the task.
        flags: the flags of this program.
    """
    forms = [form for form in flags.forms.split("; ") if is_installed(form)]
    shapes = flags.shapes.split(",") if flags.shapes else []
    length = None if path else MAX_SEQ_LENGTH
    model = open_predictor(folder, length, flags.threads)
    if path:
        with open(path, encoding="utf-8") as stream:
            lines = itertools.islice(stream, flags.rows)
            examples = [model.task.parse_row(json.loads(line)) for line in lines]
    else:
        examples, _ = model.task.parse_call(*TASKS[name].inputs(flags.rows))
    found = compare_forms(folder, model, examples, forms, flags.threads)
    written = [form for form in forms if "refused" not in found[form]]
    timed = time_shapes(folder, shapes, written, flags.shape_turns, flags.threads)
    first = {} if path else time_first_answers(folder, TASKS[name], written, flags.turns)
    return [
        {"model": name, "form": form, "answers": len(examples)}
        | found.get(form, {})
        | timed.get(form, {})
        | first.get(form, {})
        for form in (MODEL, *forms)
    ]


def is_installed(form: str) -> bool:
    """Returns whether the package that writes a format is installed; says so if it is not."""
    package = PACKAGES[FORMS[form][0]]
    is_there = importlib.util.find_spec(package) is not None
    if not is_there:
        logging.warning("skipped: %s needs %s", form, package)
    return is_there


def main() -> None:
    """Compares all models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="albert_base")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5, help="first answers of each; 0 for none")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--folder", default="", help="where to keep the models, to time them again")
    parser.add_argument("--models", default="", help="FOLDER:FILE, …: these instead of the tasks")
    parser.add_argument("--forms", default="; ".join(FORMS))
    parser.add_argument("--shapes", default="", help="ROWSxTOKENS, … to time")
    parser.add_argument("--shape_turns", type=int, default=5)
    parser.add_argument("--threads", type=int)
    reporting.add_flag(parser)
    flags = parser.parse_args()
    logging.set_verbosity(logging.WARNING)
    tf.config.threading.set_intra_op_parallelism_threads(flags.threads or 0)
    table: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, folder, path in models(flags, flags.folder or temporary):
            rows = measure(name, folder, path, flags)
            for row in rows:
                reporting.print_line("answers", **row)
            table += rows
    reporting.write_table(flags.results, table)


def models(flags: argparse.Namespace, home: str) -> Iterator[tuple[str, str, str]]:
    """Yields name, folder and file to answer of each model; writes those with random weights."""
    if flags.models:
        for given in flags.models.split(","):
            folder, _, path = given.partition(":")
            yield os.path.basename(folder), folder, path
        return
    if not os.path.isdir(SHARED):
        sys.exit(f"skipped: no data at {SHARED}")
    config = AlbertConfig.from_json_file(config_file(flags.config))
    for name in flags.tasks.split(","):
        folder = os.path.join(home, name)
        if not os.path.exists(folder):
            write_model(TASKS[name], config, folder)
        yield name, folder, ""


if __name__ == "__main__":
    main()
