"""Which files of a folder are those of a split, and what is said if none or several are."""

from __future__ import annotations

import gzip
import json
import pathlib

import fsspec
import pytest

from albert_tf.tables import open_table
from albert_tf.tables.splits import find_files, find_split


@pytest.fixture
def folder(tmp_path):
    def make(*names, state=None):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
        for place, files in (state or {}).items():
            saved = {"_data_files": [{"filename": file} for file in files]}
            (tmp_path / place / "state.json").write_text(json.dumps(saved))
        return str(tmp_path)

    return make


def names_of(folder, *split):
    return [str(pathlib.Path(path).relative_to(folder)) for path in find_split(folder, *split)]


# Files of a folder, and which of them each split has.
LAYOUTS = [
    (
        ["train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test.parquet"],
        {
            "train": ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
            "test": ["test.parquet"],
        },
    ),
    (
        [
            "data/train-00000-of-00001-7ae5f9f8d2e30000.parquet",
            "data/validation-0.parquet",
            "x.json",
        ],
        {
            "train": ["data/train-00000-of-00001-7ae5f9f8d2e30000.parquet"],
            "dev": ["data/validation-0.parquet"],
        },
    ),
    (
        ["train/0001.parquet", "train/0000.parquet", "validation/0000.parquet"],
        {"train": ["train/0000.parquet", "train/0001.parquet"], "dev": ["validation/0000.parquet"]},
    ),
    (
        ["training.JSONL.gz", "valid.csv.zst", "glue-mrpc-testing.json", "unsupervised.json"],
        {
            "train": ["training.JSONL.gz"],
            "dev": ["valid.csv.zst"],
            "test": ["glue-mrpc-testing.json"],
        },
    ),
    (
        [
            *(f"train.csv/part-0000{n}-3c9a-c000.csv" for n in (1, 0)),
            "train.csv/_SUCCESS",
            "train.csv/.part-00000-3c9a-c000.csv.crc",
            "train.csv/_started_77.json",
            "test.parquet/part.0.parquet",
            "dev.parquet.gzip",
        ],
        {
            "train": [f"train.csv/part-0000{n}-3c9a-c000.csv" for n in (0, 1)],
            "test": ["test.parquet/part.0.parquet"],
            "dev": ["dev.parquet.gzip"],
        },
    ),
    (
        ["train.tsv", "train-sample.tsv", "val.tsv", ".train.json", "dataset_dict.json"],
        {"train": ["train.tsv"], "dev": ["val.tsv"]},
    ),
]


@pytest.mark.parametrize(("files", "splits"), LAYOUTS)
def test_words_in_names_tell_the_split(folder, files, splits):
    path = folder(*files)
    assert {split: names_of(path, split) for split in splits} == splits


def test_the_sets_of_mnli_have_a_further_word(folder):
    path = folder("train.parquet", "validation_matched.parquet", "validation_mismatched.parquet")
    assert names_of(path, "dev", "matched") == ["validation_matched.parquet"]
    assert names_of(path, "dev", "mismatched") == ["validation_mismatched.parquet"]
    assert names_of(path, "train", "matched") == ["train.parquet"]
    with pytest.raises(ValueError, match=r"validation_matched\.parquet and validation_mismatched"):
        find_split(path, "dev")


def test_save_to_disk_has_its_own_order(folder):
    shards = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]
    path = folder(
        "dataset_dict.json",
        *(f"train/{name}" for name in shards),
        "train/cache-1.arrow",
        "train/dataset_info.json",
        state={"train": shards},
    )
    assert names_of(path, "train") == [f"train/{name}" for name in shards]
    assert find_files(f"{path}/train", "--train_file") == [f"{path}/train/{n}" for n in shards]
    pathlib.Path(path, "train", shards[0]).unlink()
    with pytest.raises(FileNotFoundError, match=r"train/data-00001-of-00002\.arrow is missing"):
        find_split(path, "train")


@pytest.mark.parametrize("name", ["../../rows.jsonl", "../rows.jsonl", "{folder}/rows.jsonl"])
def test_save_to_disk_has_its_files_inside(folder, tmp_path, name):
    name = name.format(folder=tmp_path)
    for place in (tmp_path, tmp_path / "data"):
        place.mkdir(exist_ok=True)
        (place / "rows.jsonl").write_text("{}")
    path = folder("data/train/data-00000-of-00001.arrow", state={"data/train": [name]})
    for find in (
        lambda: find_split(f"{path}/data", "train"),
        lambda: find_files(f"{path}/data/train", "--train_file"),
    ):
        with pytest.raises(ValueError, match=rf"train/state\.json names '{name[:9]}.*: expected a"):
            find()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (5, "an entry: '_data_files' is 5, expected dict"),
        ([], r"an entry: '_data_files' is \[\], expected dict"),
        ({}, "'filename' is missing, expected str"),
        ({"filename": None}, "'filename' is None, expected str"),
    ],
)
def test_a_damaged_order_is_named(folder, entry, said):
    path = pathlib.Path(folder("train/data.arrow"))
    (path / "train" / "state.json").write_text(json.dumps({"_data_files": [entry]}))
    with pytest.raises(ValueError, match=rf"train/state\.json: {said}"):
        find_split(str(path), "train")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], r"no dev data in .*: it is empty"),
        (["notes.md", "corpus.json"], r"no dev data in .*: it has corpus\.json, notes\.md"),
        (["train.csv", "test/a.csv"], r"it has test \(test/a\.csv\), train \(train\.csv\)"),
        (
            ["cola/train.csv", "mrpc/dev.csv"],
            r"the folders cola, mrpc, which have splits: pass one",
        ),
        ([f"{n:02}.txt" for n in range(11)], r"it has 00\.txt, .*09\.txt, …$"),
        (["a.md", "train.tar.gz"], r"it has a\.md, train\.tar\.gz\. Unpack train\.tar\.gz$"),
    ],
)
def test_what_is_there_is_said_where_a_split_is_missing(folder, files, said):
    path = folder(*files)
    with pytest.raises(FileNotFoundError, match=said):
        find_split(path, "dev")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            ["dev-00000-of-00003.csv", "dev-00002-of-00003.csv"],
            "shards -00001-of-00003 are missing",
        ),
        (["dev-00001-of-00002.csv.gz"], "shards -00000-of-00002 are missing"),
        (["dev-00000-of-00001.csv", "dev-00001-of-00002.csv"], "are shards of several sets"),
        (["dev.csv", "dev.tsv"], r"contains dev\.csv and dev\.tsv: keep only one of them"),
        (["dev.csv", "valid.csv"], r"contains dev\.csv and valid\.csv: keep only one of them"),
        (["dev_r1.json", "dev_r2.json"], r"contains dev_r1\.json and dev_r2\.json"),
        (
            ["dev.parquet/label=0/part-0.parquet"],
            r"dev\.parquet/label=0: the rows are divided by the values of a column, which",
        ),
    ],
)
def test_what_may_be_meant_in_two_ways_is_refused(folder, files, said):
    path = folder(*files)
    with pytest.raises(ValueError, match=said):
        find_split(path, "dev")


def test_a_flag_names_files_in_order(folder):
    path = folder("b-00000-of-00002.csv", "b-00001-of-00002.csv", "a.csv")
    shards = [f"{path}/b-0000{n}-of-00002.csv" for n in range(2)]
    assert find_files(f"{path}/b*", "--train_file") == shards
    assert find_files(f"{path}/b*,{path}/a.csv", "--train_file") == [*shards, f"{path}/a.csv"]
    with pytest.raises(ValueError, match="-00000-of-00002 are missing"):
        find_files(shards[1], "--train_file")
    with pytest.raises(ValueError, match=r"--train_file: .* is a folder, but not one"):
        find_files(path, "--train_file")
    folder("c.csv/part-1.csv", "c.csv/part-0.csv", "c.csv/_SUCCESS")
    parts = [f"{path}/c.csv/part-{n}.csv" for n in range(2)]
    assert find_files(f"{path}/c.csv", "--train_file") == parts
    folder("c.csv/more.csv")
    with pytest.raises(ValueError, match=r"c\.csv is a folder, but not one"):
        find_files(f"{path}/c.csv", "--train_file")


def test_a_remote_folder_is_read_as_a_local_one():
    memory = fsspec.filesystem("memory")
    for number, text in enumerate(("one", "two")):
        name = f"/hub/data/train-0000{number}-of-00002.jsonl"
        memory.pipe_file(name, gzip.compress(json.dumps({"text": text}).encode()))
    paths = find_split("memory://hub", "train")
    assert [row["text"] for _, row in open_table(paths)] == ["one", "two"]
    assert find_files("memory://hub/data/*.jsonl", "--train_file") == paths
    with pytest.raises(FileNotFoundError, match=r"it has train \(data/train-00000"):
        find_split("memory://hub", "dev")
    memory.rm("/hub", recursive=True)
