"""Text, and runs of the data program."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random

import pytest

from albert_tf.data.create import create_pretraining_data
from albert_tf.data.record_metadata import find_records
from albert_tf.data.records import read_records
from albert_tf.data.settings import MEGABYTE, Settings
from tests.conftest import TOY_TEXT

SETTINGS = Settings(
    input_file="none",
    output_file="none",
    max_seq_length=37,
    dupe_factor=3,
    max_predictions_per_seq=7,
    chunk_megabytes=3000 / MEGABYTE,
    num_workers=1,
    num_logged_instances=0,
)


def write(path, data):
    """Writes bytes, or text in UTF-8, and returns the path as a string."""
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return str(path)


def split_documents(lines):
    """Lists of lines, split at blank ones."""
    groups = itertools.groupby(lines, key=lambda line: bool(line.strip()))
    return [list(group) for is_text, group in groups if is_text]


def flip(frames, place, byte):
    """The records of a file, with another bit at a byte of one of them."""
    frame = bytearray(frames[place])
    frame[byte] ^= 1
    return b"".join([*frames[:place], bytes(frame), *frames[place + 1 :]])


def contents(folder):
    """Path in the folder → content, of all files."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def all_records(folder):
    """The records of all files of a folder, in the order of the files' names."""
    paths = find_records(f"{folder}/*", "records")
    return [record for path in paths for record in read_records(path)]


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory):
    """Path of a text of 60 documents, which are six chunks of `SETTINGS`."""
    rng = random.Random(5)
    lines = TOY_TEXT.splitlines()
    documents = ["\n".join(rng.choices(lines, k=rng.randint(1, 9))) for _ in range(60)]
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    return write(path, "\n\n".join(documents) + "\n")


@pytest.fixture
def make(tmp_path, corpus_file, toy_spm_model, monkeypatch):
    """A function that creates records in the test's folder and returns their metadata."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # makes writing slow

    def run(output="out/train@3", inputs=(), create=create_pretraining_data, **changes):
        settings = dataclasses.replace(
            SETTINGS,
            input_file=",".join(map(str, inputs)) or corpus_file,
            output_file=str(tmp_path / output),
            spm_model_file=toy_spm_model,
        )
        return create(dataclasses.replace(settings, **changes))

    return run
