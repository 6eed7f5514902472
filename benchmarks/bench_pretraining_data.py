"""How fast are pre-training records made, beside tf.train.Example alone on the same instances?

    python benchmarks/bench_pretraining_data.py
    python benchmarks/bench_pretraining_data.py --spm_model_file=spm.model --english=text.txt

For English (SentencePiece) and Chinese (WordPiece), S=512, dupe_factor 10:

* `ratio`: processor time of create_pretraining_data.py with one worker, from its start to its end,
  divided by that of building and serializing one `tf.train.Example` for each of the same instances,
  as Google's programs do (a list of numbers -> Int64List -> Feature -> Features -> Example); at
  most 1.2 is wanted. In the same run, so that both see the same machine; processor time, so that
  other work on the machine counts little. `ratio_wall` is the same by the clock.
* `tf_example_extend_microseconds`: the same with the fields of one Example filled in place, which
  is the fastest way that protobuf offers.
* `memory`: peak of the largest process for texts of several sizes. What is shuffled at a time is
  set so small that it is used up by all of them.
* `scaling`: speeds by the clock with one and with two workers; on a busy machine, no more than
  what the others left over.

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
WANTED_RATIO = 1.2
MEGABYTE = 1 << 20
LINES_OF_A_DOCUMENT = 50


@dataclasses.dataclass(frozen=True)
class Run:
    """What one call of the program took.

    Attributes:
        instances: how many it made.
        wall, cpu: seconds, by the clock and of all its processes together.
        peak_megabytes: memory of its largest process.
    """

    instances: int
    wall: float
    cpu: float
    peak_megabytes: float


def make_text(source: str, path: Path, size: int, is_book: bool) -> None:
    """Copies of a text, at least `size` bytes; a book is first cut into sentences and documents."""
    text = Path(source).read_text("utf-8").strip()
    if is_book:
        lines = [line for line in text.replace("。", "。\n").split("\n") if line.strip()]
        pages = range(0, len(lines), LINES_OF_A_DOCUMENT)
        text = "\n\n".join("\n".join(lines[at : at + LINES_OF_A_DOCUMENT]) for at in pages)
    data = f"{text}\n\n".encode()
    path.write_bytes(data * -(-size // len(data)))


def run_program(text: Path, records: Path, vocabulary: str, *flags: str) -> Run:
    """Runs create_pretraining_data.py and measures it."""
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py"), vocabulary),
        *(f"--input_file={text}", f"--output_file={records}", "--num_logged_instances=0"),
        *("--max_seq_length=512", "--max_predictions_per_seq=20", *flags),
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


def serialize_officially(instance: dict[str, list[Any]]) -> bytes:
    """One instance, built as Google's programs build it."""
    import tensorflow as tf

    features = collections.OrderedDict()
    for name, values in instance.items():
        if isinstance(values[0], float):
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))
        else:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))
        features[name] = feature
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


def serialize_in_place(instance: dict[str, list[Any]]) -> bytes:
    """One instance, filled into the fields of an empty Example."""
    import tensorflow as tf

    example = tf.train.Example()
    for name, values in instance.items():
        feature = example.features.feature[name]
        numbers = feature.float_list if isinstance(values[0], float) else feature.int64_list
        numbers.value.extend(values)
    return bytes(example.SerializeToString())


def time_examples(
    serialize: Callable[[dict[str, list[Any]]], bytes], records: Path, count: int
) -> tuple[float, float]:
    """Seconds for one instance, by the clock and of the processor."""
    from albert_tf.data.records import read_records
    from albert_tf.data.tfrecord import decode_example

    instances = [
        {name: values.tolist() for name, values in decode_example(record).items()}
        for record in itertools.islice(read_records(str(records)), count)
    ]
    serialize(instances[0])  # imports
    wall, cpu = time.perf_counter(), time.process_time()
    for instance in instances:
        serialize(instance)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / len(instances), cpu / len(instances)


def compare(text: Path, folder: Path, vocabulary: str, samples: int) -> dict[str, Any]:
    """Speed and ratio of one language."""
    records = folder / "train"
    run = run_program(text, records, vocabulary, "--dupe_factor=10", "--num_workers=1")
    wall, cpu = time_examples(serialize_officially, records, samples)
    _, in_place = time_examples(serialize_in_place, records, samples)
    ratio = run.cpu / (cpu * run.instances)
    return {
        "instances": run.instances,
        "instances_per_second_and_core": round(run.instances / run.cpu),
        "microseconds": round(1e6 * run.cpu / run.instances, 1),
        "tf_example_microseconds": round(1e6 * cpu, 1),
        "tf_example_extend_microseconds": round(1e6 * in_place, 1),
        "ratio": round(ratio, 3),
        "ratio_wall": round(run.wall / (wall * run.instances), 3),
        "within_bar": ratio <= WANTED_RATIO,
    }


def measure_memory(source: str, folder: Path, vocabulary: str, sizes: list[int]) -> dict[str, int]:
    """Megabytes of text -> peak megabytes of memory."""
    peaks = {}
    for size in sizes:
        make_text(source, folder / "long.txt", size * MEGABYTE, False)
        run = run_program(
            *(folder / "long.txt", folder / "long", vocabulary, "--dupe_factor=1"),
            *("--num_workers=1", "--shuffle_megabytes=2"),
        )
        peaks[str(size)] = round(run.peak_megabytes)
    return peaks


def measure_scaling(text: Path, folder: Path, vocabulary: str) -> dict[str, Any]:
    """Instances a second by the clock with one and two workers."""
    runs = [
        run_program(
            text, folder / f"scaled{n}", vocabulary, "--dupe_factor=10", f"--num_workers={n}"
        )
        for n in (1, 2)
    ]
    return {
        "instances_per_second": [round(run.instances / run.wall) for run in runs],
        "speedup": round(runs[0].wall / runs[1].wall, 2),
        "processor_time": round(runs[1].cpu / runs[0].cpu, 2),
    }


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--english", default=str(SHARED / "golden/pretraining_data/corpus_en.txt"))
    parser.add_argument("--chinese", default=str(SHARED / "data/text/journey_to_the_west_zh.txt"))
    parser.add_argument("--spm_model_file", default=str(SHARED / "vocab/30k-clean.model"))
    parser.add_argument("--vocab_file", default=str(SHARED / "vocab/vocab_chinese.txt"))
    parser.add_argument("--megabytes", type=int, default=6, help="of text, for speeds")
    parser.add_argument("--memory_megabytes", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--samples", type=int, default=4000, help="instances for tf.train.Example")
    args = parser.parse_args()
    for path in (args.english, args.chinese, args.spm_model_file, args.vocab_file):
        if not os.path.exists(path):
            sys.exit(f"skipped: {path} is not there; see --help for how to give others")
    result: dict[str, Any] = {"benchmark": "pretraining_data", "load_average": [os.getloadavg()[0]]}
    english, chinese = f"--spm_model_file={args.spm_model_file}", f"--vocab_file={args.vocab_file}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Before TensorFlow is imported here: a child's peak is at least its parent's size.
        result["memory"] = measure_memory(args.english, folder, english, args.memory_megabytes)
        for language, source, vocabulary in (
            ("english", args.english, english),
            ("chinese", args.chinese, chinese),
        ):
            text = folder / f"{language}.txt"
            make_text(source, text, args.megabytes * MEGABYTE, language == "chinese")
            result[language] = compare(text, folder, vocabulary, args.samples)
        result["scaling"] = measure_scaling(folder / "english.txt", folder, english)
    result["load_average"] = [
        round(load, 1) for load in (*result["load_average"], os.getloadavg()[0])
    ]
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
    print(json.dumps(result))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
