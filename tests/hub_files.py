"""Writes rows as the Hugging Face Hub and `datasets` do, with the names of labels in metadata."""

import csv
import json

import pyarrow
from pyarrow import ipc, parquet


def class_label(*names):
    return {"names": list(names), "_type": "ClassLabel"}


def list_of(feature, kind="Sequence"):
    return {"feature": feature, "_type": kind}


def table_of(rows, features):
    """The rows as a table whose metadata has features, column → feature."""
    described = {name: {"dtype": "string", "_type": "Value"} for name in rows[0]} | features
    stored = json.dumps({"info": {"features": described}}).encode()
    return pyarrow.Table.from_pylist(rows).replace_schema_metadata({"huggingface": stored})


def write_parquet(folder, splits, features):
    for split, rows in splits.items():
        parquet.write_table(
            table_of(rows, features), folder / f"{split}-00000-of-00001.parquet", row_group_size=3
        )


def write_saved_to_disk(folder, splits, features):
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    for split, rows in splits.items():
        table = table_of(rows, features)
        (folder / split).mkdir()
        name = "data-00000-of-00001.arrow"
        with ipc.new_stream(str(folder / split / name), table.schema) as stream:
            stream.write_table(table)
        state = {"_data_files": [{"filename": name}]}
        (folder / split / "state.json").write_text(json.dumps(state))
        info = {"features": features}
        (folder / split / "dataset_info.json").write_text(json.dumps(info))


def write_json_lines(folder, splits, features=None):
    for split, rows in splits.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")


def write_csv(folder, splits, features=None):
    for split, rows in splits.items():
        with open(folder / f"{split}.csv", "w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


WITH_NAMES = (write_parquet, write_saved_to_disk)
WITHOUT_NAMES = (write_json_lines, write_csv)
