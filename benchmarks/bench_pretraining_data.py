"""Measures the creation of pre-training records, beside the program of Google's Model Garden.

    python benchmarks/bench_pretraining_data.py

For English (SentencePiece) and Chinese (WordPiece), S=512, dupe_factor 10, n-grams of up to three
words masked:

* `programs`: records per second of wall time and of CPU time, start included, of
  create_pretraining_data.py with one worker per core and with one worker, and of the Model Garden's
  `official.nlp.data.create_pretraining_data`, which runs in one process. That program tokenizes and
  masks as google-research/albert's does, which needs TensorFlow 1, and makes pairs as BERT does.
  Medians of `--rounds` runs, in turn.
* `ratio`: total CPU time of create_pretraining_data.py with one worker, divided by the CPU time of
  building and serializing a `tf.train.Example` for each of the same instances, as Google's programs
  do (a list of numbers -> Int64List -> Feature -> Features -> Example). The target is at most 1.2.
  `ratio_wall` is the same ratio of wall times.
* `memory`: peak memory of the largest process for texts of several sizes, in megabytes. The shuffle
  buffer is so small that all of the texts fill it.

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contenders
import reporting

from albert_tf.data.records import count_records, read_records

SHARED = Path(contenders.SHARED)
MEGABYTE = 1 << 20
MODEL_GARDEN = "official.nlp.data.create_pretraining_data"
OURS = "ours"
ONE_WORKER = "ours, one worker"
DUPES = ("--dupe_factor=10",)
LINES_OF_A_DOCUMENT = 50
LANGUAGES = {  # text, and vocabulary
    "english": (
        SHARED / "golden/pretraining_data/corpus_en.txt",
        f"--spm_model_file={SHARED / 'vocab/30k-clean.model'}",
    ),
    "chinese": (
        SHARED / "data/text/journey_to_the_west_zh.txt",
        f"--vocab_file={SHARED / 'vocab/vocab_chinese.txt'}",
    ),
}

Instance = dict[str, list[Any]]


class Run(NamedTuple):
    """Measurements of one run: number of instances, seconds, memory of the largest process."""

    instances: int
    wall: float
    cpu: float
    peak_megabytes: float

    def rate(self) -> float:
        """Returns instances per second of wall time."""
        return self.instances / self.wall

    def cpu_rate(self) -> float:
        """Returns instances per second of CPU time."""
        return self.instances / self.cpu


def make_text(language: str, path: Path, megabytes: int) -> str:
    """Writes copies of a text up to a minimum size; splits a book into sentences and documents."""
    text = LANGUAGES[language][0].read_text("utf-8").strip()
    if language == "chinese":
        lines = [line for line in text.replace("。", "。\n").split("\n") if line.strip()]
        pages = range(0, len(lines), LINES_OF_A_DOCUMENT)
        text = "\n\n".join("\n".join(lines[at : at + LINES_OF_A_DOCUMENT]) for at in pages)
    data = f"{text}\n\n".encode()
    path.write_bytes(data * -(-megabytes * MEGABYTE // len(data)))
    return str(path)


def run_program(text: str, records: Path, language: str, *flags: str) -> Run:
    """Runs create_pretraining_data.py and measures it."""
    program = os.path.join(contenders.ROOT, "create_pretraining_data.py")
    vocabulary = LANGUAGES[language][1]
    return measure([program, vocabulary, "--num_logged_instances=0", *flags], text, records)


def run_model_garden(text: str, records: Path, language: str, *flags: str) -> Run:
    """Runs the program of the Model Garden and measures it."""
    vocabulary = LANGUAGES[language][1]
    if "spm_model_file" in vocabulary:
        path = vocabulary.partition("=")[2]
        flags = "--tokenization=SentencePiece", f"--sp_model_file={path}", *flags
    else:
        flags = vocabulary, *flags
    masking = "--do_whole_word_mask", "--max_ngram_size=3"
    return measure(["-m", MODEL_GARDEN, *masking, *flags], text, records)


def measure(arguments: list[str], text: str, records: Path) -> Run:
    """Runs a Python program that writes records of S=512, and measures it."""
    command = [
        sys.executable,
        *arguments,
        f"--input_file={text}",
        f"--output_file={records}",
        "--max_seq_length=512",
        "--max_predictions_per_seq=20",
    ]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr
    log = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        sys.exit(f"{' '.join(command)}\n{log.decode()}")
    cpu = usage.ru_utime + usage.ru_stime
    return Run(count_records(str(records)), wall, cpu, usage.ru_maxrss / 1024)


def serialize_officially(instance: Instance) -> bytes:
    """Returns a serialized instance, built as Google's programs build it."""
    from tensorflow import train

    features = {}
    for name, values in instance.items():
        if isinstance(values[0], float):
            features[name] = train.Feature(float_list=train.FloatList(value=list(values)))
        else:
            features[name] = train.Feature(int64_list=train.Int64List(value=list(values)))
    example = train.Example(features=train.Features(feature=features))
    return bytes(example.SerializeToString())


def compare_programs(text: str, folder: Path, language: str, rounds: int) -> dict[str, Run]:
    """Returns the median of each program's runs, by wall time."""
    programs: dict[str, Callable[[], Run]] = {
        OURS: lambda: run_program(text, folder / "ours", language, *DUPES),
        ONE_WORKER: lambda: run_program(text, folder / "one", language, *DUPES, "--num_workers=1"),
        "Model Garden": lambda: run_model_garden(text, folder / "garden", language, *DUPES),
    }
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            runs[name].append(program())
    return {
        name: sorted(turns, key=lambda run: run.wall)[len(turns) // 2]
        for name, turns in runs.items()
    }


def compare_serialization(run: Run, records: Path, samples: int) -> dict[str, Any]:
    """Returns the time that a run takes for a record, relative to building a tf.train.Example."""
    from albert_tf.data.tf_example import decode_example

    instances = [
        {name: values.tolist() for name, values in decode_example(record).items()}
        for record in itertools.islice(read_records(str(records)), samples)
    ]
    serialize_officially(instances[0])  # imports
    begin = time.perf_counter()
    cpu = time.process_time()
    for instance in instances:
        serialize_officially(instance)
    wall = (time.perf_counter() - begin) / len(instances)
    cpu = (time.process_time() - cpu) / len(instances)
    return {
        "instances": run.instances,
        "microseconds": round(1e6 * run.cpu / run.instances, 1),
        "tf_example_microseconds": round(1e6 * cpu, 1),
        "ratio": round(run.cpu / (cpu * run.instances), 3),
        "ratio_wall": round(run.wall / (wall * run.instances), 3),
    }


def measure_memory(folder: Path, sizes: list[int]) -> dict[str, int]:
    """Returns megabytes of text -> peak megabytes of memory."""
    flags = "--dupe_factor=1", "--num_workers=1", "--shuffle_megabytes=2"
    peaks = {}
    for size in sizes:
        text = make_text("english", folder / "long.txt", size)
        run = run_program(text, folder / "long", "english", *flags)
        peaks[str(size)] = round(run.peak_megabytes)
    return peaks


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of the table in docs/notebook/speed.md."""
    rows: list[dict[str, Any]] = []
    for language in LANGUAGES:
        programs = result[language]["programs"]
        ours = programs[OURS]["records_per_second"]
        for name, rates in programs.items():
            row = {
                "text": language.capitalize(),
                "program": name,
                "records per second": rates["records_per_second"],
                "ours is faster, times": ours / rates["records_per_second"],
                "records per CPU second": rates["records_per_cpu_second"],
            }
            if name == ONE_WORKER:
                row["CPU time / tf.train.Example's"] = result[language]["ratio"]
            rows.append(row)
    for size, peak in result["memory"].items():
        row = {"text": f"English, {size} MB", "program": ONE_WORKER, "peak MB of a process": peak}
        rows.append(row)
    return rows


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--megabytes", type=int, default=6, help="size of the text to measure speed"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program")
    parser.add_argument("--memory_megabytes", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--samples", type=int, default=4000, help="instances for tf.train.Example")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    if not SHARED.is_dir():
        sys.exit(f"skipped: no texts at {SHARED}")
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Measured before TensorFlow is imported: a child's peak is at least its parent's size.
        result["memory"] = measure_memory(folder, flags.memory_megabytes)
        for language in LANGUAGES:
            text = make_text(language, folder / f"{language}.txt", flags.megabytes)
            runs = compare_programs(text, folder, language, flags.rounds)
            rates = {
                name: {
                    "records_per_second": round(run.rate(), 1),
                    "records_per_cpu_second": round(run.cpu_rate(), 1),
                }
                for name, run in runs.items()
            }
            serialization = compare_serialization(runs[ONE_WORKER], folder / "one", flags.samples)
            result[language] = {"programs": rates} | serialization
    reporting.print_line("pretraining_data", **result)
    reporting.write_table(flags.results, rows_of(result))


if __name__ == "__main__":
    main()
