"""Damaged files of every format are either read, or refused by their name.

The damage is random, from fixed seeds: what broken disks, cut downloads, editors and other programs
leave. Reading a damaged file

* gives what the undamaged file gives; or, where a format has no checksum, anything else that can be
  written as UTF-8; or
* raises ValueError or OSError with the name of the file or of its folder.

`FUZZ_INPUTS=1000 pytest -m ci tests/test_fuzz.py` tries more inputs.
"""

from __future__ import annotations

import collections
import dataclasses
import gzip
import json
import os
import random
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import safetensors.numpy
import tensorflow as tf
from pyarrow import parquet

from albert_tf import classification
from albert_tf.checkpoints import containers, model_source, run_folder, store
from albert_tf.checkpoints.model_folder import ModelFolder
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.checkpoints.sentence_modules import read_modules
from albert_tf.data import shuffle
from albert_tf.data.chunks import read_chunks
from albert_tf.data.sentences import sentences_of
from albert_tf.data.settings import TextSettings
from albert_tf.data.sources import find_sources
from albert_tf.export.runtimes import RUNTIMES
from albert_tf.finetuning.classification.custom import recorded_labels
from albert_tf.finetuning.classification.prediction_files import read_dev_predictions
from albert_tf.finetuning.columns import parse_pair
from albert_tf.finetuning.race import Settings as RaceSettings
from albert_tf.finetuning.race.reading import read_data as read_options
from albert_tf.finetuning.squad import Settings as SquadSettings
from albert_tf.finetuning.squad.reading import read_data as read_answers
from albert_tf.finetuning.squad.reading import read_squad
from albert_tf.finetuning.token_classification import Settings as TokenSettings
from albert_tf.finetuning.token_classification.reading import read_data as read_tags
from albert_tf.inference import inputs
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer, load_tokenizer
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.metadata_checks import check_records, find_objective, find_record_files
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.record_frames import frame_records
from albert_tf.tables import open_table
from albert_tf.tables.label_names import find_labels
from albert_tf.tables.splits import find_files
from tests import huggingface_folders
from tests.conftest import MAX_PREDICTIONS, SEQ_LENGTH, TINY_SHAPE, TOY_TEXT, train_toy_vocabulary
from tests.finetuning.race.test_hub_data_sets import DATA_SETS
from tests.finetuning.squad.test_question_rows import QUESTIONS, rows_of
from tests.finetuning.token_classification.test_sentence_rows import CLUENER
from tests.finetuning.token_classification.test_sentence_rows import FEATURES as TAG_FEATURES
from tests.finetuning.token_classification.test_sentence_rows import ROWS as TAGGED
from tests.hub_files import compress_zstandard
from tests.hub_files import write_parquet as write_hub_parquet
from tests.inference.test_sentence_modules import write_modules
from tests.pretraining_runs import write_records
from tests.read_classes import read_data
from tests.tables.test_described_labels import BINARY, PAGE

pytestmark = pytest.mark.ci

INPUTS = int(os.environ.get("FUZZ_INPUTS", "20"))  # number of inputs per kind of file
MEMORY = 2**31  # limit of additional address space for reading, in bytes
# Other encodings, and characters with a meaning in one of the formats.
SIGNS = [b"\0", b"\t", b"\n", b'"', b"]", b"}", b"\\", b"-", b"9", b"\xff", b"\xed\xa0\x80"]
VALUES = ["-1", "1.5", "1" * 30, "1e999", "NaN", "null", "true", "{}", "[]", '""', '"\\ud800"']


def damage_bytes(data, rng):
    """Cuts a file short, or loses, doubles, blanks or changes a part of it."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + int(2 ** rng.uniform(0, 10)))
    before, block, after = data[:begin], data[begin:end], data[end:]
    flipped = bytes([block[0] ^ 1 << rng.randrange(8)]) + block[1:]
    changes = [b"", block * 2, bytes(len(block)), flipped, rng.choice(SIGNS) + block[1:]]
    return rng.choice([before, *(before + change + after for change in changes)])


def damage_json(data, rng):
    """Damages bytes, or replaces or removes a value, in one of the lines if there are several."""
    if not rng.randrange(4):
        return damage_bytes(data, rng)
    lines = data.splitlines()
    number = rng.randrange(len(lines))
    places = [([json.loads(lines[number])], 0)]
    for parent, key in places:
        value = parent[key]
        if isinstance(value, (dict, list)):
            keys = value if isinstance(value, dict) else range(len(value))
            places += [(value, key) for key in keys]
    root, _ = places[0]
    parent, key = rng.choice(places)
    if parent is not root and not rng.randrange(4):
        del parent[key]
    else:
        parent[key] = "@value@"
    lines[number] = json.dumps(root[0]).replace('"@value@"', rng.choice(VALUES)).encode()
    return b"\n".join(lines)


TENSORS = {f"bert/{n}/kernel": np.arange(12 * n, dtype=np.float32).reshape(3, -1) for n in (1, 2)}


CHOICES = [own for _, _, rows in DATA_SETS.values() for own in rows]
QUESTION_ROWS = rows_of(QUESTIONS)


def write_checkpoint(path):
    store.save_checkpoint(str(path.with_name("model.ckpt-7")), TENSORS)


def write_safetensors(path):
    path.write_bytes(safetensors.numpy.save(TENSORS))


def read_weights(path):
    if path.suffix != ".safetensors":
        path = path.with_name("model.ckpt-7")
    weights = containers.open_weights(str(path))
    return {name: weights.read(name) for name in sorted(weights.shapes)}


def write_train_records(path):
    write_records(path, 9)


def read_records(path):
    task = PretrainingTask(AlbertConfig(**TINY_SHAPE), SEQ_LENGTH, MAX_PREDICTIONS)
    found = record_files.check_files({str(path): None}, task.features)
    batches = list(
        input_pipeline.batches(input_pipeline.evaluation_dataset(found, task.features, 4), found)
    )
    for batch in batches:
        assert np.all((batch["input_ids"] >= 0) & (batch["input_ids"] < 97)), "out of range"
    return batches


def read_config(path):
    return AlbertConfig.from_json_file(str(path)).to_dict()


def write_run(path):
    store.save_checkpoint(str(path.with_name("model.ckpt-1")), {"output_bias": np.zeros(2)})
    path.with_name("words").write_text("[PAD]\n")
    settings = {"do_lower_case": True, "vocab_file": "words", "optimizer": "lamb", "rate": [0.1, 1]}
    start = {"directory": str(path.parent), "command": ["run"]}
    known = {"vocabulary": FileRecord("5 entries, sha256 abab", "/x/vocab.txt")}
    task = {"name": "classification", "labels": ["a", "b"]}
    RunFolder(str(path.parent)).write_record(RunRecord(start, settings, TINY_SHAPE, known, task))
    path.write_bytes(lines(json.loads(path.read_text())))


def read_run(path):
    source = model_source.ModelSource.open(str(path.parent))
    record = source.run.record
    values = record.values_for(classification.Settings, ("optimizer", "vocab_file"))
    labels = recorded_labels(record)
    return record.to_json(), labels, record.texts(), values, source.do_lower_case


def read_task_of_ones_own(path):
    folder = str(path.parent)
    values = {"task_name": "tsv", "data_dir": folder, "output_dir": "out"}
    task, data = read_data(classification.Settings(do_train=True, **values))
    return task.labels, data["train"].examples


def read_questions_of_squad(path):
    return dataclasses.astuple(read_squad(str(path), is_training=True))[1:]


def read_described_labels(path):
    return find_labels(str(path.parent / "small" / "train.csv"))[0]


def read_conll(path):
    folder = str(path.parent)
    tags, data = read_tags(TokenSettings(output_dir="out", data_dir=folder, do_train=True))
    return tags.labels, data["train"].examples


def read_choices(path):
    folder = str(path.parent)
    settings = RaceSettings(task_name="choice", output_dir="out", data_dir=folder, do_eval=False)
    return read_options(settings)["train"].examples


def read_rows_of_squad(path):
    settings = SquadSettings(output_dir="out", train_file=str(path), do_train=True)
    return dataclasses.astuple(read_answers(settings)["train"])[2:]


def write_openvino(path):
    openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
    from openvino import opset13

    ids = opset13.parameter([-1, 3], np.float32)
    kernel = opset13.constant(np.arange(12, dtype=np.float32).reshape(3, 4))
    scores = opset13.softmax(opset13.matmul(ids, kernel, False, False), 1)
    openvino.save_model(openvino.Model([scores], [ids]), str(path), compress_to_fp16=False)


def read_openvino(path):
    return callable(RUNTIMES[path.name].open_file(str(path), RunRecord(), "float32", 1))


def write_tags(path):
    write_hub_parquet(path.parent, {"train": TAGGED}, TAG_FEATURES)


def write_saved(path):
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name in names:
        path.with_name(name).write_bytes(b"")
    path.write_bytes(lines({"_data_files": [{"filename": name} for name in names]}))


def read_saved(path):
    return find_files(str(path.parent), "--train_file")


POOLING = {"word_embedding_dimension": 12, "pooling_mode": ["mean", "cls"], "include_prompt": True}


def write_sentence_modules(path):
    folder = path.parents[1] if path.parent.name == "1_Pooling" else path.parent
    write_modules(folder, ("Transformer", {}), ("Pooling", POOLING), ("Normalize", {}))
    options = {"max_seq_length": 9, "do_lower_case": True}
    (folder / "sentence_bert_config.json").write_bytes(lines(options))
    prompts = {"prompts": {"query": ""}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_bytes(lines(prompts))
    for file in folder.rglob("*.json"):  # on one line each
        file.write_bytes(lines(json.loads(file.read_text())))


def read_sentence_modules(path):
    folder = path.parents[1] if path.parent.name == "1_Pooling" else path.parent
    return read_modules(ModelFolder(str(folder)))


def write_described_records(path):
    records = path.with_name("records.tfrecord")
    write_records(records, 9)
    entry = {"name": records.name, "instances": 9, "bytes": records.stat().st_size}
    vocabulary = {"file": "toy.model", "size": 97, "checksum": "c0ffee"}
    settings = {"sentence_objective": "sop"}
    values = {"settings": settings, "vocabulary": vocabulary, "mask_id": 4, "files": [entry]}
    path.write_bytes(lines(values))


def read_described_records(path):
    found = find_record_files(str(path.with_name("records.tfrecord")), "--input_file")
    check_records(found, find_objective(found), AlbertConfig(**TINY_SHAPE))
    return list(found.values())


def read_saved_digests(path):
    return RunFolder(str(path.parent)).saved_digests()


def write_tokenizer_options(path):
    huggingface_folders.write_spiece(path.parent)


def read_inputs(path):
    return list(inputs.read_blocks(str(path), path.suffix.removeprefix("."), parse_pair))


def read_metrics(path):
    return RunFolder(str(path.parent)).metrics()


def read_evaluations(path):
    return RunFolder(str(path.parent)).evaluations()


def read_predictions(path):
    return read_dev_predictions(RunFolder(str(path.parent)))


def write_block(path):
    frames = frame_records([b"%d" % number * number for number in range(40)])
    counts = collections.Counter(instances=40, record_bytes=sum(map(len, frames)))
    batch = shuffle.EncodedBatch(frames, np.arange(40) * 100, counts)
    shuffle.spill([batch], str(path).removesuffix("-000.spill"), 1)


def read_block(path):
    return list(shuffle.shuffled([str(path)], 0, 1, 3, 7))


def write_sentencepiece(path):
    train_toy_vocabulary(path, 89, ["(", ")"])


def write_tokenizer(path):
    huggingface_folders.write_unigram(path.parent)


def encode(tokenizer):
    batch = tokenizer([("The rivers", "a boat, 1999,"), ("\u00e9\u4e2d", "")])
    return tokenizer.vocab_size, batch, tokenizer.decode(batch["input_ids"][0])


def read_sentencepiece(path):
    return encode(FullTokenizer(spm_model_file=str(path)))


def read_word_pieces(path):
    return encode(FullTokenizer(vocab_file=str(path)))


def read_tokenizer(path):
    return encode(load_tokenizer(str(path)))


def write_parquet(path):
    parquet.write_table(pyarrow.table({"text": SENTENCES}), path, row_group_size=4)


def write_rows(path):
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=4)


def write_arrow(path):
    table = pyarrow.Table.from_pylist(ROWS)
    with pyarrow.ipc.new_stream(str(path), table.schema) as stream:
        stream.write_table(table)


def write_compressed(path):
    rows = [f'"{row["text"]}",{row["label"]}' for row in ROWS]
    path.write_bytes(compress_zstandard(lines("text,label", *rows)))


def read_text(path):
    form = "sentences" if ".txt" in path.name else "jsonl"
    chunks = read_chunks(find_sources([str(path)]), 100, form)
    settings = TextSettings(input_format=form)
    return [lines for chunk in chunks for lines in sentences_of(chunk.parts, settings)]


def lines(*rows):
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return "".join(f"{text}\n" for text in texts).encode()


SENTENCES = [line for line in TOY_TEXT.splitlines() if line]
ROWS = [{"text": text, "label": "ab"[n % 2], "id": n} for n, text in enumerate(SENTENCES)]
TSV = lines("text\tlabel\tid", *(f"{row['text']}\t{row['label']}\t{row['id']}" for row in ROWS))
ANSWERS = [{"text": "boat", "answer_start": 8}, {"text": "A small boat", "answer_start": 0}]
QUESTIONS = [
    {"id": "q1", "question": "What waits?", "answers": ANSWERS, "is_impossible": False},
    {"id": "q3", "question": "Why?", "answers": [], "is_impossible": True},
]
PARAGRAPH = {"context": "A small boat waits at the landing.", "qas": QUESTIONS}
SQUAD = {"version": "v2.0", "data": [{"title": "x", "paragraphs": [PARAGRAPH]}]}
CONLL = lines(*(f"{word} O\nx B-LOC{chr(10) * (word[-1] == '.')}" for word in TOY_TEXT.split()))
WORDS = lines("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "##s", *"abcdefghij")
CHECKPOINTS = lines(*({"step": step, "digest": f"{step:016}"} for step in (0, 3, 6)))
EVALUATION = {"metrics": {"f1": 0.5}, "checkpoint": "ab", "measured_on": "cd", "precision": "x"}
EVALUATIONS = lines(*({"step": step, **EVALUATION} for step in (0, 3, 6)))
PREDICTIONS = lines("line\tguid\tlabel\tprediction\ta\tb", "2\tx\ta\tb\t0.4\t0.6")
METRICS = lines(*({"step": step, "loss": 1.5, "learning_rate": 0.1} for step in (2, 4, 6)))

# File, its content or the function that writes it, reader, damage.
KINDS = [
    ("model.ckpt-7.index", write_checkpoint, read_weights, damage_bytes),
    (f"model.ckpt-7{run_folder.DATA_SUFFIX}", write_checkpoint, read_weights, damage_bytes),
    ("model.safetensors", write_safetensors, read_weights, damage_bytes),
    ("records.tfrecord", write_train_records, read_records, damage_bytes),
    ("albert_config.json", lines(TINY_SHAPE), read_config, damage_json),
    ("run.json", write_run, read_run, damage_json),
    ("metrics.jsonl", METRICS, read_metrics, damage_bytes),
    ("train.tsv", TSV, read_task_of_ones_own, damage_bytes),
    ("train.jsonl", lines(*ROWS), read_task_of_ones_own, damage_json),
    ("train.json", lines(json.dumps(ROWS)), read_task_of_ones_own, damage_bytes),
    ("train.csv.zst", write_compressed, read_task_of_ones_own, damage_bytes),
    ("train.parquet", write_rows, read_task_of_ones_own, damage_bytes),
    ("train.arrow", write_arrow, read_task_of_ones_own, damage_bytes),
    ("squad.json", lines(SQUAD), read_questions_of_squad, damage_json),
    ("README.md", PAGE.encode(), read_described_labels, damage_bytes),
    ("dataset_infos.json", lines({"x": {"features": BINARY}}), read_described_labels, damage_json),
    ("train.txt", CONLL, read_conll, damage_bytes),
    ("train.jsonl", lines(*CLUENER), read_conll, damage_json),
    ("train-00000-of-00001.parquet", write_tags, read_conll, damage_bytes),
    ("train.jsonl", lines(*CHOICES), read_choices, damage_json),
    ("train.jsonl", lines(*QUESTION_ROWS), read_rows_of_squad, damage_json),
    ("inputs.jsonl", lines(*ROWS), read_inputs, damage_json),
    ("inputs.parquet", write_rows, read_inputs, damage_bytes),
    ("state.json", write_saved, read_saved, damage_json),
    ("modules.json", write_sentence_modules, read_sentence_modules, damage_json),
    ("1_Pooling/config.json", write_sentence_modules, read_sentence_modules, damage_json),
    ("sentence_bert_config.json", write_sentence_modules, read_sentence_modules, damage_json),
    ("records.records.json", write_described_records, read_described_records, damage_json),
    ("checkpoints.jsonl", CHECKPOINTS, read_saved_digests, damage_json),
    ("evaluations.jsonl", EVALUATIONS, read_evaluations, damage_json),
    ("dev_predictions.tsv", PREDICTIONS, read_predictions, damage_bytes),
    ("chunk-0-000.spill", write_block, read_block, damage_bytes),
    ("tokenizer_config.json", write_tokenizer_options, read_tokenizer, damage_json),
    ("model.xml", write_openvino, read_openvino, damage_bytes),
    ("toy.model", write_sentencepiece, read_sentencepiece, damage_bytes),
    ("vocab.txt", WORDS, read_word_pieces, damage_bytes),
    ("tokenizer.json", write_tokenizer, read_tokenizer, damage_json),
    ("text.txt", TOY_TEXT.encode(), read_text, damage_bytes),
    ("text.txt.gz", gzip.compress(TOY_TEXT.encode(), mtime=0), read_text, damage_bytes),
    ("text.parquet", write_parquet, read_text, damage_bytes),
    ("text.jsonl", lines(*ROWS), read_text, damage_json),
]
# Those of checkpoints and records, from which nothing else may be read.
WITH_CHECKSUM = [row[0] for row in KINDS[:2] + KINDS[3:4]]


def frozen(value):
    """What was read, in a form that can be compared, and written as UTF-8."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.astuple(value)
    if isinstance(value, (np.ndarray, tf.Tensor)):
        array = np.asarray(value)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(value, Mapping):
        return tuple((frozen(key), frozen(value[key])) for key in value)
    if isinstance(value, (list, tuple)):
        return tuple(map(frozen, value))
    return value.encode("utf-8") if isinstance(value, str) else repr(value)


@pytest.fixture
def limited_memory():
    """Refuses memory to a reader that believes a damaged length."""
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="limits memory as on Linux")
@pytest.mark.parametrize(
    ("name", "content", "read", "damage"),
    KINDS,
    ids=[f"{row[0]}-{row[2].__name__}" for row in KINDS],
)
def test_damaged_files_are_read_or_refused_by_name(
    name, content, read, damage, tmp_path, limited_memory
):
    path = tmp_path / "good" / name
    path.parent.mkdir(parents=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    expected = frozen(read(path))
    for number in range(INPUTS):
        folder = shutil.copytree(tmp_path / "good", tmp_path / f"damaged{number}")
        damaged = folder / name
        damaged.write_bytes(damage(path.read_bytes(), random.Random(f"{name} {number}")))
        found, message = expected, ""
        try:
            found = frozen(read(damaged))
        except (ValueError, OSError) as error:
            message = repr(error)
        is_named = str(folder) in message or damaged.name in message
        assert is_named or not message, f"{damaged} is not named: {message}"
        assert found == expected or name not in WITH_CHECKSUM, damaged
        shutil.rmtree(folder)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="limits memory as on Linux")
@pytest.mark.parametrize(
    ("name", "start", "block", "read"),
    [
        ("a.tsv.gz", b"text\tlabel\n", b"a", lambda path: list(open_table(str(path)))),
        (
            "a.csv.gz",
            b'text,label\n"',
            b"a" * 1023 + b"\n",
            lambda path: list(open_table(str(path))),
        ),
        ("a.jsonl.gz", b'{"text": "a"}\n', b"[", lambda path: list(open_table(str(path)))),
        ("a.json.gz", b'[{"text": "', b"a", lambda path: list(open_table(str(path)))),
        ("text.txt.gz", b"a line\n\n", b"a ", read_text),
        ("text.jsonl.gz", b'{"text": "', b"a", read_text),
    ],
)
def test_a_line_without_end_in_a_small_file_does_not_fill_the_memory(
    name, start, block, read, tmp_path, limited_memory
):
    """What is without end unpacks to 4 GiB."""
    path = tmp_path / name
    endless = gzip.compress(block * ((1 << 24) // len(block)), 1)
    path.write_bytes(gzip.compress(start) + endless * 256)
    assert path.stat().st_size < 1 << 26
    with pytest.raises(ValueError, match=name):
        read(path)
