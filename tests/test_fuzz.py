"""Fuzzes the readers of every format: a damaged file is either read, or refused by its name.

The damage is random, from fixed seeds: flipped bits, files cut short, blocks that are missing or
there twice, values of other types, giant numbers. An input passes if reading it

* gives what the undamaged file gives; or, where a format has no checksum, anything else that can be
  written as UTF-8; or
* raises ValueError or OSError with the name of the file or of its folder.

Any other exception, a crash, a hang or a claim for gigabytes of memory fails. `FUZZ_INPUTS=1000
pytest -m slow tests/test_fuzz.py` tries more inputs; after a crash, the file that caused it lies
in the temporary folder of the test.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gzip
import json
import logging
import os
import random
import resource
import shutil
import signal
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import ipc, parquet

from albert_tf import classification
from albert_tf.checkpoints import containers, finding, pretrained, store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.classification import custom, tasks
from albert_tf.classification.reading import read_examples
from albert_tf.classification.settings import CustomDataSettings
from albert_tf.config import AlbertConfig
from albert_tf.data import (
    corpus,
    records,
    tfrecord,
    work_directory,
)
from albert_tf.data.settings import TextSettings
from albert_tf.data.text_formats import sentences_of
from albert_tf.finetuning import results
from albert_tf.finetuning.texts import parse_pair
from albert_tf.huggingface_tokenizer import load_tokenizer
from albert_tf.inference import reading as inference_reading
from albert_tf.pretraining import input_pipeline
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.race.reading import read_questions, read_race
from albert_tf.squad.reading import read_squad
from albert_tf.token_classification import Settings as TokenSettings
from albert_tf.token_classification import task as tokens
from albert_tf.token_classification.reading import read_sentences
from albert_tf.tokenization import FullTokenizer
from albert_tf.training import evaluation
from tests import huggingface_folders
from tests.conftest import MAX_PREDICTIONS, SEQ_LENGTH, TINY_SHAPE, TOY_TEXT, train_toy_vocabulary
from tests.training.test_loop import write_records

pytestmark = pytest.mark.ci

INPUTS = int(os.environ.get("FUZZ_INPUTS", "60"))  # number of inputs per kind of file
CPU_SECONDS = 20  # an input that takes longer counts as a hang
MEMORY = 2**31  # limit of additional address space for reading, in bytes
SHOWN_FAILURES = 8
LOG = logging.getLogger(__name__)
LOG.setLevel(logging.INFO)  # `pytest -rP` shows the counts

# Byte strings that have a meaning in one of the formats, or are not UTF-8.
SIGNS = [b"\0", b"\t", b"\n", b"\r", b'"', b",", b":", b"[", b"]", b"{", b"}", b"\\", b"-", b"9"]
SIGNS += [b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\x1f\x8b\x08", b"\\ud800"]
# Texts that replace JSON values.
NUMBERS = ["-1", "0", "1.5", "1" * 30, "9" * 5000, "1e308", "1e999", "-0.0", "NaN", "-Infinity"]
OTHERS = ["null", "true", "{}", "[]", "[[]]", "[null]", '{"x": 1}']
TEXTS = [
    '""',
    '"x"',
    '"nan"',
    '"\\ud800"',
    '"a\\tb\\nc"',
    '"\\u0000"',
    '"../x"',
    '"' + "y" * 9999 + '"',
]


class HangError(BaseException):
    """Reading takes too long."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        write: writes good files into an empty folder, and returns the one to damage.
        read: returns what the programs take from that file.
        damage: of the content and a generator; returns another content.
        has_checksum: whether no other content may be read from a damaged file.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    damage: Callable[[bytes, random.Random], bytes]
    has_checksum: bool = False


KINDS: dict[str, Kind] = {}


def kind(name, write, damage, has_checksum=False):
    """Registers the decorated function as the reader of a kind of file."""

    def register(read):
        KINDS[name] = Kind(write, read, damage, has_checksum)
        return read

    return register


# Damage


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Applies one or two random changes to bytes."""
    for _ in range(rng.choice([1, 1, 2])):
        begin = rng.randrange(len(data) + 1)
        end = min(len(data), begin + int(2 ** rng.uniform(0, 10)))
        before, block, after = data[:begin], data[begin:end], data[end:]
        flipped = bytes([block[0] ^ 1 << rng.randrange(8)]) + block[1:] if block else b""
        data = rng.choice(
            [
                before,
                before + after,
                before + block + block + after,
                before + flipped + after,
                before + flipped + after,
                before + flipped + after,
                before + bytes(len(block)) + after,
                before + rng.randbytes(len(block)) + after,
                before + rng.choice(SIGNS) + block + after,
                before + rng.choice(SIGNS) + block[1:] + after,
                before + after + block,
            ]
        )
    return data


def damage_bits(data: bytes, rng: random.Random) -> bytes:
    """Flips up to three bits; else as `damage_bytes`."""
    if rng.randrange(2):
        return damage_bytes(data, rng)
    content = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def damage_pieces(data: bytes, rng: random.Random) -> bytes:
    """Damages the pieces of a SentencePiece model, which are the first and smaller part of it."""
    begin = data.rindex("\u2581".encode()) if rng.randrange(4) else len(data)
    return damage_bits(data[:begin], rng) + data[begin:]


def damage_json(data: bytes, rng: random.Random) -> bytes:
    """Damages bytes, or replaces, removes or doubles a value of a JSON text."""
    if not rng.randrange(4):
        return damage_bytes(data, rng)
    root = [json.loads(data)]
    places = [(root, 0)]
    for parent, key in places:
        value = parent[key]
        if isinstance(value, (dict, list)):
            places += [
                (value, key) for key in (value if isinstance(value, dict) else range(len(value)))
            ]
    parent, key = rng.choice(places)
    action = rng.randrange(8)
    if action == 0 and parent is not root:
        del parent[key]
        return json.dumps(root[0]).encode()
    if action == 1 and isinstance(parent, dict):
        return json.dumps(root[0]).replace(f'"{key}":', f'"{key}": 1, "{key}":', 1).encode()
    parent[key] = mark = "@value@"
    new = rng.choice(rng.choice([NUMBERS, OTHERS, TEXTS]))
    return json.dumps(root[0]).replace(f'"{mark}"', new, 1).encode()


def damage_json_line(data: bytes, rng: random.Random) -> bytes:
    """Damages one line of JSON lines."""
    lines = data.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    lines[number] = damage_json(lines[number].rstrip(b"\n"), rng) + b"\n"
    return b"".join(lines)


def damage_gzip(data: bytes, rng: random.Random) -> bytes:
    """Damages what is compressed, or the compressed bytes."""
    if rng.randrange(2):
        return damage_bytes(data, rng)
    return gzip.compress(damage_bytes(gzip.decompress(data), rng), mtime=0)


def damage_record(data: bytes, rng: random.Random) -> bytes:
    """Damages the content of a record, and corrects its checksums."""
    contents = []
    while data:
        size = int.from_bytes(data[:8], "little") + tfrecord.HEADER_BYTES
        contents.append(data[tfrecord.HEADER_BYTES : size])
        data = data[size + tfrecord.FOOTER_BYTES :]
    number = rng.randrange(len(contents))
    contents[number] = damage_bytes(contents[number], rng)
    return b"".join(tfrecord.frame_records(contents))


def damage_frames(data: bytes, rng: random.Random) -> bytes:
    """Damages bytes of a record file, or gives a record another length with a right checksum."""
    if rng.randrange(3):
        return damage_bytes(data, rng)
    size = struct.pack("<Q", rng.choice([0, 1, 2**20, 2**31, 2**40, 2**63, 2**64 - 1]))
    (header,) = {frame[:12] for frame in tfrecord.frame_records([b""])}
    crc = tfrecord.checksum(size)
    first = int.from_bytes(data[:8], "little") + tfrecord.HEADER_BYTES + tfrecord.FOOTER_BYTES
    at = rng.choice([0, first])
    return data[:at] + size + crc + data[at + len(header) :]


def damage_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Damages bytes, or the JSON header."""
    if rng.randrange(2):
        return damage_bytes(data, rng)
    size = int.from_bytes(data[:8], "little")
    header = damage_json(data[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


# Checkpoints

TENSORS = {
    f"bert/layer_{number}/kernel": np.arange(12 * number, dtype=np.float32).reshape(3, -1)
    for number in (1, 2, 3)
}


def write_checkpoint(suffix):
    def write(folder):
        prefix = folder / "model.ckpt-7"
        step = {"global_step": np.array(7, np.int64)}
        store.save_checkpoint(str(prefix), TENSORS | step)
        return prefix.with_name(prefix.name + suffix)

    return write


def write_safetensors(folder):
    numpy = pytest.importorskip("safetensors.numpy")
    (folder / "model.safetensors").write_bytes(numpy.save(TENSORS))
    return folder / "model.safetensors"


@kind("checkpoint, index", write_checkpoint(".index"), damage_bytes, has_checksum=True)
@kind("checkpoint, data", write_checkpoint(store.DATA_SUFFIX), damage_bytes, has_checksum=True)
def read_numbered_checkpoint(path):
    prefix = str(path.with_name("model.ckpt-7"))
    weights = containers.open_weights(prefix)
    return {name: weights.read(name) for name in sorted(weights.shapes)}


@kind("safetensors", write_safetensors, damage_safetensors)
def read_weights(path):
    weights = containers.open_weights(str(path))
    return {name: weights.read(name) for name in sorted(weights.shapes)}


# Records

NUM_RECORDS = 9


def write_record_file(folder):
    write_records(folder / "train.tfrecord", NUM_RECORDS)
    return folder / "train.tfrecord"


def write_compressed_records(folder):
    path = write_record_file(folder)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    return path


def write_record_metadata(folder):
    path = write_record_file(folder)
    entry = {"name": path.name, "instances": NUM_RECORDS, "bytes": path.stat().st_size}
    settings = {"max_seq_length": SEQ_LENGTH, "max_predictions_per_seq": MAX_PREDICTIONS}
    vocabulary = {"checksum": "ab" * 32, "size": 97, "file": "vocab.txt"}
    metadata = {"files": [entry], "settings": settings, "vocabulary": vocabulary, "mask_id": 4}
    records.write_metadata(f"{path}{records.METADATA_SUFFIX}", metadata)
    return Path(f"{path}{records.METADATA_SUFFIX}")


def record_task():
    return PretrainingTask(AlbertConfig(**TINY_SHAPE), SEQ_LENGTH, MAX_PREDICTIONS)


def rows_of(found):
    features = record_task().features
    dataset = input_pipeline.evaluation_dataset(found, features, 4)
    batches = list(input_pipeline.batches(dataset, found))
    for name, limit in {"input_ids": 97, "masked_lm_positions": SEQ_LENGTH}.items():
        for batch in batches:
            assert np.all((batch[name] >= 0) & (batch[name] < limit)), f"{name} out of its range"
    return [
        {name: value.numpy()[row] for name, value in batch.items()}
        for batch in batches
        for row in range(len(batch["input_ids"]))
    ]


@kind("records", write_record_file, damage_frames, has_checksum=True)
@kind("records, gzip", write_compressed_records, damage_bytes, has_checksum=True)
@kind("records with valid checksums", write_record_file, damage_record)
def read_record_file(path):
    return rows_of(record_task().find_records(str(path), "input_file"))


@kind("record metadata", write_record_metadata, damage_json)
def read_record_metadata(path):
    record_file = str(path).removesuffix(records.METADATA_SUFFIX)
    return [dataclasses.astuple(info) for info in records.read_metadata([record_file]).values()]


# Configs


def write_config(folder):
    AlbertConfig(**TINY_SHAPE).to_json_file(str(folder / "albert_config.json"))
    return folder / "albert_config.json"


def write_hugging_face_config(folder):
    values = TINY_SHAPE | {
        "model_type": "albert",
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(values))
    return folder / "config.json"


def write_tokenizer_config(folder):
    store.save_checkpoint(str(folder / "model.ckpt-1"), {"output_bias": np.zeros(2)})
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "other": [1]}')
    return folder / "tokenizer_config.json"


def write_run(folder):
    store.save_checkpoint(str(folder / "model.ckpt-1"), {"output_bias": np.zeros(2)})
    (folder / "words").write_text("[PAD]\n")
    settings = {"do_lower_case": True, "vocab_file": "words", "optimizer": "lamb", "rate": [0.1, 1]}
    start = {"directory": str(folder), "command": ["run"]}
    known = {"vocabulary": FileRecord("5 entries, sha256 abab", "/x/vocab.txt")}
    task = {"name": "classification", "task_name": "tsv", "folder": "", "labels": ["a", "b"]}
    RunFolder(str(folder)).write_record(RunRecord(start, settings, TINY_SHAPE, known, task))
    return folder / "run.json"


@kind("config", write_config, damage_json)
@kind("config of Hugging Face", write_hugging_face_config, damage_json)
def read_config(path):
    return AlbertConfig.from_json_file(str(path)).to_dict()


@kind("tokenizer config", write_tokenizer_config, damage_json)
@kind("run.json", write_run, damage_json)
def read_what_is_known_of_a_model(path):
    source = pretrained.ModelSource(str(path.parent))
    record, case = source.run.record, source.do_lower_case
    labels, texts = custom.recorded_labels(record), record.texts()
    values = record.values_for(classification.Settings, ("optimizer", "vocab_file"))
    found = finding.find_vocabulary(source.folder) if path.name == "run.json" else None
    return record.to_json(), labels, texts, values, case, found


# Tables, questions and sentences


def write_lines(name, *lines):
    def write(folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


SENTENCES = [line for line in TOY_TEXT.splitlines() if line]
ROWS = [{"text": text, "label": "ab"[n % 2], "id": n} for n, text in enumerate(SENTENCES)]
TSV = ["text\tlabel\tid", *(f"{row['text']}\t{row['label']}\t{row['id']}" for row in ROWS)]
CSV = ["text,label,id", *(f'"{row["text"]}",{row["label"]},{row["id"]}' for row in ROWS)]
WSC = {
    "text": "The boat met the ship before it sank.",
    "target": {
        "span1_text": "ship",
        "span1_index": 17,
        "span2_text": "it",
        "span2_index": 29,
    },
    "label": "true",
    "idx": 4,
}
COPA = {"premise": "It rained.", "choice0": "I left.", "choice1": "I stayed.", "question": "effect"}
CONLL = [
    line
    for word in TOY_TEXT.split()
    for line in [f"{word} O", *["x B-LOC", ""] * (word[-1] == ".")]
]


def examples_of(task, path):
    split = path.stem
    found = read_examples(task, str(path.parent), split)
    return [dataclasses.astuple(example) for example in found.examples]


@kind("table, tsv", write_lines("train.tsv", *TSV), damage_bytes)
@kind("table, csv", write_lines("train.csv", *CSV), damage_bytes)
@kind("table, jsonl", write_lines("train.jsonl", *map(json.dumps, ROWS)), damage_json_line)
def read_table(path):
    task = custom.find_task("tsv", str(path.parent), CustomDataSettings())
    return task.labels, examples_of(task, path)


@kind(
    "CoLA",
    write_lines("dev.tsv", *(f"g\t{n % 2}\t*\t{t}" for n, t in enumerate(SENTENCES))),
    damage_bytes,
)
def read_cola(path):
    return examples_of(tasks.find_task("cola"), path)


@kind("CLUE WSC", write_lines("train.json", *[json.dumps(WSC)] * 3), damage_json_line)
def read_wsc(path):
    return examples_of(tasks.find_task("wsc"), path)


@kind("CLUE COPA", write_lines("test.json", *[json.dumps(COPA)] * 3), damage_json_line)
def read_copa(path):
    return examples_of(tasks.find_task("copa"), path)


def squad(version):
    answers = [{"text": "boat", "answer_start": 8}, {"text": "A small boat", "answer_start": 0}]
    questions = [
        {"id": "q1", "question": "What waits?", "answers": answers, "is_impossible": False},
        {"id": "q2", "question": "Where?", "answers": answers[:1]},
    ]
    if version == "v2.0":
        questions.append({"id": "q3", "question": "Why?", "answers": [], "is_impossible": True})
    paragraph = {"context": "A small boat waits at the landing.", "qas": questions}
    return json.dumps({"version": version, "data": [{"title": "x", "paragraphs": [paragraph]}]})


@kind("SQuAD 1.1, train", write_lines("train.json", squad("1.1")), damage_json)
@kind("SQuAD 2.0, dev", write_lines("dev.json", squad("v2.0")), damage_json)
def read_squad_file(path):
    return dataclasses.astuple(read_squad(str(path), is_training=path.stem == "train"))[2:]


ARTICLE = {
    "article": TOY_TEXT,
    "questions": ["What waits?", "Where is _ ?"],
    "options": [["a boat", "a ship", "a train", "nobody"], ["here", "there", "up", "down"]],
    "answers": ["A", "C"],
    "id": "middle1.txt",
}
CHOICE = {"passage": TOY_TEXT, "question": "What?", "options": ["a", "b", "c"], "label": 1, "id": 5}


@kind("RACE", write_lines("RACE/dev/middle/1.txt", json.dumps(ARTICLE)), damage_json)
@kind(
    "RACE, all.txt",
    write_lines("RACE/dev/middle/all.txt", *[json.dumps(ARTICLE)] * 3),
    damage_json_line,
)
def read_race_folder(path):
    found = read_race(str(path.parents[3]), "dev", ["middle"])
    return [dataclasses.astuple(question) for question in found.examples]


@kind("choices, jsonl", write_lines("train.jsonl", *[json.dumps(CHOICE)] * 3), damage_json_line)
def read_choices(path):
    found = read_questions(str(path.parent), "train")
    return [dataclasses.astuple(question) for question in found.examples]


@kind("CoNLL", write_lines("train.txt", *CONLL), damage_bytes)
def read_conll(path):
    settings = TokenSettings(output_dir="out", data_dir=str(path.parent))
    tags = tokens.find_tags(settings)
    found = read_sentences(settings, "train", tags.labels)
    return dataclasses.astuple(tags), [dataclasses.astuple(s) for s in found.examples]


@kind("inputs, tsv", write_lines("inputs.tsv", *TSV), damage_bytes)
@kind("inputs, csv", write_lines("inputs.csv", *CSV), damage_bytes)
@kind("inputs, jsonl", write_lines("inputs.jsonl", *map(json.dumps, ROWS)), damage_json_line)
def read_inputs(path):
    form = path.suffix.removeprefix(".")
    return list(inference_reading.read_blocks(str(path), form, parse_pair))


# Files of a run

EVALUATION = {"metrics": {"f1": 0.5}, "checkpoint": "ab" * 8, "measured_on": "cd" * 8}
EVALUATIONS = [json.dumps({"step": step, **EVALUATION}) for step in (0, 2, 4)]
METRICS = [json.dumps({"step": step, "loss": 1.5, "learning_rate": 0.1}) for step in (2, 4, 6)]


@kind("metrics.jsonl", write_lines("metrics.jsonl", *METRICS), damage_bytes)
def read_metrics(path):
    return RunFolder(str(path.parent)).metrics()


class TaskOfEvaluations:
    """What an evaluator asks a task for, before it evaluates anything."""

    selection_metric = "f1"

    def measured_on(self):
        return EVALUATION["measured_on"]


@kind("evaluations.jsonl", write_lines("evaluations.jsonl", *EVALUATIONS), damage_bytes)
def read_evaluations(path):
    folder = RunFolder(str(path.parent))
    made = evaluation.CheckpointEvaluator(folder, TaskOfEvaluations(), None).evaluations
    stops = evaluation.is_patience_exhausted(made, "f1", 2)
    text = results.write_race_results(folder, made, "f1") if made else ""
    return [dataclasses.astuple(entry) for entry in made], text, stops


# Vocabularies


def write_sentencepiece(folder):
    train_toy_vocabulary(folder / "toy.model", 89, ["(", ")"])
    return folder / "toy.model"


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "##s", *"abcdefghij"]


@kind("SentencePiece model", write_sentencepiece, damage_pieces)
@kind("vocab.txt", write_lines("vocab.txt", *WORDS), damage_bytes)
def read_vocabulary(path):
    name = {".model": "spm_model_file", ".txt": "vocab_file"}[path.suffix]
    tokenizer = FullTokenizer(**{name: str(path)})
    batch = tokenizer([("The rivers", "a boat, 1999,"), ("\u00e9\u4e2d", "")])
    return tokenizer.vocab_size, batch, tokenizer.decode(batch["input_ids"][0])


def write_tokenizer_json(folder):
    huggingface_folders.write_unigram(folder)
    return folder / "tokenizer.json"


def write_tokenizer_options(write):
    def write_both(folder):
        token = {"content": "sea", "normalized": True, "special": False}
        write(folder, added_tokens_decoder={"90": token}, additional_special_tokens=["<x>"])
        return folder / "tokenizer_config.json"

    return write_both


@kind("tokenizer.json", write_tokenizer_json, damage_json)
@kind(
    "options of a SentencePiece model",
    write_tokenizer_options(huggingface_folders.write_spiece),
    damage_json,
)
@kind(
    "options of vocab.txt",
    write_tokenizer_options(huggingface_folders.write_vocabulary),
    damage_json,
)
def read_tokenizer(path):
    tokenizer = load_tokenizer(str(path))
    batch = tokenizer([("The rivers", "a boat, 1999,"), ("\u00e9\u4e2d", "")])
    return tokenizer.vocab_size, batch, tokenizer.decode(batch["input_ids"][0])


# The data program


def write_compressed_text(folder):
    (folder / "text.txt").write_bytes(gzip.compress(TOY_TEXT.encode() * 3, mtime=0))
    return folder / "text.txt"


def write_packed_text(module, name):
    def write(folder):
        compress = pytest.importorskip(module).compress
        (folder / name).write_bytes(compress(TOY_TEXT.encode() * 3))
        return folder / name

    return write


def write_parquet(folder):
    parquet.write_table(_table(), folder / "text.parquet", row_group_size=4)
    return folder / "text.parquet"


def write_arrow(folder):
    with ipc.new_stream(str(folder / "text.arrow"), _table().schema) as writer:
        writer.write_table(_table(), max_chunksize=4)
    return folder / "text.arrow"


def _table():
    return pyarrow.table({"text": SENTENCES, "title": SENTENCES})


@kind("text, bzip2", write_packed_text("bz2", "text.txt.bz2"), damage_bytes)
@kind("text, Zstandard", write_packed_text("backports.zstd", "text.txt.zst"), damage_bytes)
@kind("text, Parquet", write_parquet, damage_bytes)
@kind("text, Arrow", write_arrow, damage_bytes)
@kind("text, jsonl", write_lines("text.jsonl", *map(json.dumps, ROWS)), damage_json_line)
@kind("text", write_lines("text.txt", *SENTENCES[:3], "", *SENTENCES[3:]), damage_bytes)
@kind("text, gzip", write_compressed_text, damage_gzip)
def read_text(path):
    has_rows = path.suffix in (".jsonl", ".parquet", ".arrow")
    form = corpus.JSONL if has_rows else corpus.SENTENCES
    settings = TextSettings(input_format=form)
    chunks = corpus.read_chunks([str(path)], 100, form)
    return [lines for chunk in chunks for lines in sentences_of(chunk.parts, settings)]


def write_work_directory(name):
    def write(folder):
        path = str(folder / "work")
        with (
            contextlib.suppress(KeyboardInterrupt),
            work_directory.open_work_directory(path, {}) as work,
        ):
            work.finish_chunk(work_directory.FinishedChunk((0, 0), "c0ffee", [], {"instances": 4}))
            work.finish_output(0, "beef", 4)
            raise KeyboardInterrupt
        return folder / "work" / name

    return write


@kind("work directory, run.json", write_work_directory("run.json"), damage_json)
@kind(
    "work directory, chunk",
    write_work_directory("chunk-000000-000000000000-c0ffee.json"),
    damage_json,
)
@kind("work directory, output", write_work_directory("output-00000.json"), damage_json)
def read_work_directory(path):
    work = work_directory.WorkDirectory(str(path.parent))
    work_directory._resume_or_start(work, {})
    chunk = work.find_chunk((0, 0), "c0ffee")
    return chunk and len(chunk.blocks), work.finished_outputs("beef")


# All kinds of files


def frozen(value: Any) -> Any:
    """Returns what was read, in a form that can be compared.

    Raises:
        UnicodeEncodeError: a text that no file and no terminal takes.
    """
    if isinstance(value, (np.ndarray, tf.Tensor)):
        array = np.asarray(value)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(value, Mapping):
        return tuple((frozen(key), frozen(value[key])) for key in value)
    if isinstance(value, (list, tuple)):
        return tuple(map(frozen, value))
    return value.encode("utf-8") if isinstance(value, str) else repr(value)


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Interrupts code that runs for too long or allocates too much memory."""

    def stop(*_: Any) -> None:
        raise HangError(f"more than {CPU_SECONDS} s")

    before = signal.signal(signal.SIGPROF, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # CPU time, as other programs may be running
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def outcome(kind: Kind, path: Path, expected: Any) -> str:
    """Returns "as before", "other content" or "refused"; or else what is wrong."""
    try:
        with limits():
            found = frozen(kind.read(path))
    except (ValueError, OSError) as error:
        text = str(error)
        name = path.name.removesuffix(".index").removesuffix(store.DATA_SUFFIX)
        if name not in text and str(path.parent) not in text:
            return f"without the file: {type(error).__name__}: {text[:200]}"
        return "refused"
    except (Exception, HangError) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    if found == expected:
        return "as before"
    return "something else was read in silence" if kind.has_checksum else "other content"


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="limits memory as on Linux")
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_read_or_refused_by_name(name, tmp_path):
    kind, good = KINDS[name], tmp_path / "good"
    good.mkdir()
    path = kind.write(good)
    content, expected = path.read_bytes(), None
    counts: collections.Counter[str] = collections.Counter()
    failures = []
    for number in range(-1, INPUTS):
        rng = random.Random(f"{name} {number}")
        folder = tmp_path / "damaged"
        shutil.copytree(good, folder)
        damaged = folder / path.relative_to(good)
        if number < 0:
            expected = frozen(kind.read(damaged))
        else:
            damaged.write_bytes(kind.damage(content, rng))
            found = outcome(kind, damaged, expected)
            if found not in ("as before", "other content", "refused"):
                failures.append(f"input {number}: {found}")
                found = "failed"
            counts[found] += 1
        shutil.rmtree(folder)
    total = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    LOG.info("%s: %d inputs: %s", name, INPUTS, total)
    assert not failures, "\n".join([f"{len(failures)} failures", *failures[:SHOWN_FAILURES]])
