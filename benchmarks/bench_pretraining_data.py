"""Measures the creation of pre-training records, relative to serializing tf.train.Example.

    python benchmarks/bench_pretraining_data.py

For English (SentencePiece) and Chinese (WordPiece), S=512, dupe_factor 10:

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
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contenders
import reporting

SHARED = Path(contenders.SHARED)
MEGABYTE = 1 << 20
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


def run_program(text: str, records: Path, vocabulary: str, *flags: str) -> Run:
    """Runs create_pretraining_data.py and measures it."""
    command = [
        sys.executable,
        os.path.join(contenders.ROOT, "create_pretraining_data.py"),
        vocabulary,
        f"--input_file={text}",
        f"--output_file={records}",
        "--num_logged_instances=0",
        "--max_seq_length=512",
        "--max_predictions_per_seq=20",
        *flags,
    ]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr
    log = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        sys.exit(f"{' '.join(command)}\n{log.decode()}")
    metadata = json.loads(Path(f"{records}.records.json").read_text("utf-8"))
    cpu = usage.ru_utime + usage.ru_stime
    return Run(metadata["counts"]["instances"], wall, cpu, usage.ru_maxrss / 1024)


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


def compare(text: str, folder: Path, vocabulary: str, samples: int) -> dict[str, Any]:
    """Returns the speed and the ratios for one language."""
    from albert_tf.data.records import read_records
    from albert_tf.data.tfrecord import decode_example

    records = folder / "train"
    run = run_program(text, records, vocabulary, "--dupe_factor=10", "--num_workers=1")
    instances = [
        {name: values.tolist() for name, values in decode_example(record).items()}
        for record in itertools.islice(read_records(str(records)), samples)
    ]
    serialize_officially(instances[0])  # imports
    begin, cpu = time.perf_counter(), time.process_time()
    for instance in instances:
        serialize_officially(instance)
    wall = (time.perf_counter() - begin) / len(instances)
    cpu = (time.process_time() - cpu) / len(instances)
    return {
        "instances": run.instances,
        "instances_per_second_and_core": round(run.instances / run.cpu),
        "microseconds": round(1e6 * run.cpu / run.instances, 1),
        "tf_example_microseconds": round(1e6 * cpu, 1),
        "ratio": round(run.cpu / (cpu * run.instances), 3),
        "ratio_wall": round(run.wall / (wall * run.instances), 3),
    }


def measure_memory(folder: Path, vocabulary: str, sizes: list[int]) -> dict[str, int]:
    """Returns megabytes of text -> peak megabytes of memory."""
    flags = "--dupe_factor=1", "--num_workers=1", "--shuffle_megabytes=2"
    peaks = {}
    for size in sizes:
        text = make_text("english", folder / "long.txt", size)
        peaks[str(size)] = round(run_program(text, folder / "long", vocabulary, *flags)[-1])
    return peaks


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--megabytes", type=int, default=6, help="size of the text to measure speed"
    )
    parser.add_argument("--memory_megabytes", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--samples", type=int, default=4000, help="instances for tf.train.Example")
    reporting.add_flag(parser)
    flags = parser.parse_args()
    if not SHARED.is_dir():
        sys.exit(f"skipped: no texts at {SHARED}")
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, vocabulary = Path(name), LANGUAGES["english"][1]
        # Measured before TensorFlow is imported: a child's peak is at least its parent's size.
        result["memory"] = measure_memory(folder, vocabulary, flags.memory_megabytes)
        for language, (_, its_vocabulary) in LANGUAGES.items():
            text = make_text(language, folder / f"{language}.txt", flags.megabytes)
            result[language] = compare(text, folder, its_vocabulary, flags.samples)
    reporting.print_line("pretraining_data", **result)
    rows = [
        {
            "text": language.capitalize(),
            "records per CPU second": result[language]["instances_per_second_and_core"],
            "CPU μs per record": result[language]["microseconds"],
            "CPU time / tf.train.Example's": result[language]["ratio"],
        }
        for language in LANGUAGES
    ]
    for size, peak in result["memory"].items():
        rows.append({"text": f"English, {size} MB", "peak MB of a process": peak})
    reporting.write_table(flags.results, rows)


if __name__ == "__main__":
    main()
