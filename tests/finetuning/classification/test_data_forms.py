"""The same examples in every form in which people have data: equal examples, and equal weights."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import ipc, parquet

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import TRAINING_EXAMPLES
from albert_tf.finetuning.classification import Settings, run
from albert_tf.finetuning.classification.encoding import Example
from albert_tf.finetuning.classification.prediction_files import write_dev_predictions
from albert_tf.tables.python_rows import tables_of
from tests.cli.fine_tuning_programs import SENTENCES
from tests.read_classes import read_data
from tests.script_runner import tensors

TRAIN = [
    {"text": SENTENCES[n * 3 % 7], "label": ("dry", "wet")["river" in SENTENCES[n * 3 % 7]]}
    for n in range(22)
]
DEV = [{"text": text, "label": ("dry", "wet")["river" in text]} for text in SENTENCES]


def shards(rows):
    return {"00000-of-00002": rows[: len(rows) // 2], "00001-of-00002": rows[len(rows) // 2 :]}


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_before(folder):
    for split, rows in (("train", TRAIN), ("dev", DEV)):
        write_json_lines(folder / f"{split}.jsonl", rows)


def write_parquet_shards(folder):
    for split, rows in (("train", TRAIN), ("validation", DEV)):
        (folder / "data").mkdir(exist_ok=True)
        for shard, part in shards(rows).items():
            table = pyarrow.Table.from_pylist(part)
            parquet.write_table(table, folder / "data" / f"{split}-{shard}.parquet")


def write_saved_to_disk(folder):
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    for split, rows in (("train", TRAIN), ("validation", DEV)):
        (folder / split).mkdir()
        names = []
        for shard, part in shards(rows).items():
            names.append({"filename": f"data-{shard}.arrow"})
            table = pyarrow.Table.from_pylist(part)
            with ipc.new_stream(str(folder / split / f"data-{shard}.arrow"), table.schema) as out:
                out.write_table(table)
        (folder / split / "state.json").write_text(json.dumps({"_data_files": names}))


def write_csv(folder):
    for split, rows in (("train", TRAIN), ("valid", DEV)):
        with open(folder / f"{split}.csv", "w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, ["text", "label"])
            writer.writeheader()
            writer.writerows(rows)


def write_compressed_array(folder):
    for split, rows in (("training", TRAIN), ("val", DEV)):
        (folder / f"{split}.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))


FORMS: list[Callable[[Path], None]] = [
    write_before,
    write_parquet_shards,
    write_saved_to_disk,
    write_csv,
    write_compressed_array,
]


def settings_for(folder, **values):
    return Settings(task_name="tsv", output_dir=str(folder / "out"), **values)


def contents(data):
    return {
        split: [(example.text_a, example.text_b, example.label) for example in examples.examples]
        for split, examples in data.items()
    }


EXPECTED = {
    "train": [(row["text"], "", row["label"]) for row in TRAIN],
    "dev": [(row["text"], "", row["label"]) for row in DEV],
}


@pytest.mark.parametrize("write", FORMS)
def test_examples_are_the_same_in_every_form(tmp_path, write):
    write(tmp_path)
    settings = settings_for(tmp_path, data_dir=str(tmp_path), do_train=True, do_eval=True)
    task, data = read_data(settings)
    assert task.labels == ("dry", "wet")
    assert contents(data) == EXPECTED
    for split, examples in data.items():
        places = [(example.row, example.id) for example in examples.examples]
        assert places == [(n + 1, f"{split}-{n}") for n in range(len(places))]


def test_rows_are_counted_without_headers_and_blank_lines(tmp_path):
    rows = [*TRAIN[:2], {"text": "unknown", "label": "-"}, *TRAIN[2:]]
    blank = "\n".join(["", *(json.dumps(row) + "\n" for row in rows)])
    (tmp_path / "a.jsonl").write_text(blank)
    lines = ["label\ttext", *(f"{row['label']}\t{row['text']}" for row in rows)]
    (tmp_path / "b.tsv").write_text("\n".join(lines))
    (tmp_path / "c.tsv").write_text("\n".join(lines[1:]))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
    columns = {"text_a_column": "1", "label_column": "0", "has_header": False}
    found = []
    for name, flags in (("a.jsonl", {}), ("b.tsv", {}), ("c.tsv", columns), ("d.parquet", {})):
        settings = settings_for(tmp_path, train_file=str(tmp_path / name), do_train=True, **flags)
        _, data = read_data(dataclasses.replace(settings, dev_fraction=0.5, do_eval=True))
        found.append([(x.row, x.id) for x in data["dev"].examples])
        assert {number for number, _ in found[-1]} <= {*range(1, len(rows) + 1)} - {3}
    assert found[1:] == found[:1] * 3


def test_the_file_of_dev_predictions_has_the_same_places_for_all_formats(tmp_path):
    """Of rows with an id of their own, it has that."""
    texts = []
    for name, write in (("csv", write_csv), ("parquet", write_parquet_shards)):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
        settings = settings_for(
            tmp_path, data_dir=str(tmp_path / name), do_train=True, do_eval=True
        )
        task, data = read_data(settings)
        dev = data["dev"].examples
        predicted = ["wet"] * len(dev)
        rows = np.zeros((len(dev), 2), np.float32)
        write_dev_predictions(RunFolder(str(tmp_path)), task, dev, predicted, rows)
        texts.append((tmp_path / "dev_predictions.tsv").read_text())
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[1].startswith("1\tdev-0\t")
    assert Example("dev-7", "a", row=3).id == "dev-7"


def test_files_of_any_name_and_rows_of_python_are_the_same_examples(tmp_path):
    (tmp_path / "data").mkdir()
    write_json_lines(tmp_path / "data" / "mine.jsonl", TRAIN)
    write_json_lines(tmp_path / "data" / "yours.json", DEV)
    named = {
        f"{name}_file": str(tmp_path / "data" / file)
        for name, file in (
            ("train", "mine.jsonl"),
            ("dev", "yours.json"),
        )
    }
    phases = {"do_train": True, "do_eval": True}
    assert contents(read_data(settings_for(tmp_path, **phases, **named))[1]) == EXPECTED
    given = tables_of({"train": iter(TRAIN), "validation": DEV})
    assert contents(read_data(settings_for(tmp_path, **phases), given=given)[1]) == EXPECTED


@pytest.mark.ci
def test_rows_of_python_train_the_same_weights_as_files(tmp_path, config_file, toy_spm_model):
    """The data are known by their content: rows of Python continue a run that files began."""
    write_parquet_shards(tmp_path)

    def train(name, rows=None, **where):
        settings = Settings(
            task_name="tsv",
            output_dir=str(tmp_path / name),
            albert_config_file=str(config_file),
            spm_model_file=str(toy_spm_model),
            train_batch_size=4,
            train_step=3,
            max_seq_length=24,
            **where,
        )
        run(settings, data=rows)
        return tmp_path / name

    data = {"train": TRAIN, "dev": DEV}
    folders = train("files", data_dir=str(tmp_path)), train("rows", data)
    ours, theirs = (tensors(folder / "model.ckpt-3") for folder in folders)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    first, second = (RunFolder(str(folder)).record.files for folder in folders)
    assert first[TRAINING_EXAMPLES].digest == second[TRAINING_EXAMPLES].digest
    train("files", data)
    with pytest.raises(ValueError, match="training examples"):
        train("files", data | {"train": TRAIN[:-1]})
