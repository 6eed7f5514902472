"""Writes rows as the Hugging Face Hub and `datasets` do, with the names of labels in metadata."""

import csv
import gzip
import json

import pyarrow
import pytest
from pyarrow import ipc, parquet


def compress_zstandard(content):
    zstd = pytest.importorskip("backports.zstd", reason="needs the extra zstd")
    return zstd.compress(content)


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


def write_shards(folder, splits, features):
    (folder / "data").mkdir()
    for split, rows in splits.items():
        count = min(2, len(rows))
        for number in range(count):
            begin, end = (len(rows) * n // count for n in (number, number + 1))
            name = f"{split}-{number:05}-of-{count:05}.parquet"
            parquet.write_table(table_of(rows, features)[begin:end], folder / "data" / name)


def write_arrow(folder, splits, features):
    for split, rows in splits.items():
        table = table_of(rows, features)
        with ipc.new_file(str(folder / f"{split}.arrow"), table.schema) as stream:
            stream.write_table(table)


def write_array(folder, splits, features=None):
    for split, rows in splits.items():
        (folder / f"{split}.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def describe_in_json(folder, features):
    """Describes the features as repositories of before front matter do."""
    (folder / "dataset_infos.json").write_text(json.dumps({"default": {"features": features}}))


def describe_in_page(folder, features):
    """Describes the features in the front matter of README.md."""

    def described(feature):
        if "names" in feature:
            names = "".join(f"\n{' ' * 10}'{n}': '{x}'" for n, x in enumerate(feature["names"]))
            return f"\n{' ' * 6}class_label:\n{' ' * 8}names:{names}"
        return f" {feature['dtype']}"

    lines = "".join(
        f"  - name: {name}\n    sequence:{described(feature['feature'])}\n"
        if "feature" in feature
        else f"  - name: {name}\n    dtype:{described(feature)}\n"
        for name, feature in features.items()
    )
    page = f"---\nlicense: mit\ndataset_info:\n  features:\n{lines}---\n\n# Data\n"
    (folder / "README.md").write_text(page, encoding="utf-8")


def compressed(write, ending):
    """Returns what writes files as `write` does, and compresses them."""

    def write_compressed(folder, splits, features=None):
        write(folder, splits, features)
        for path in list(folder.iterdir()):
            compress = {".gz": gzip.compress, ".zst": compress_zstandard}[ending]
            path.with_name(path.name + ending).write_bytes(compress(path.read_bytes()))
            path.unlink()

    return write_compressed


def described_by(write, describe):
    """Returns what writes files as `write` does, and the names of labels beside them."""

    def write_described(folder, splits, features):
        write(folder, splits)
        if features:
            describe(folder, features)

    return write_described


WITH_NAMES = (write_parquet, write_saved_to_disk)
WITHOUT_NAMES = (write_json_lines, write_csv)
# Name of a layout → what writes it.
LAYOUTS = {
    "parquet": write_parquet,
    "shards": write_shards,
    "save_to_disk": write_saved_to_disk,
    "arrow": write_arrow,
    "json_lines": described_by(write_json_lines, describe_in_json),
    "json_lines.gz": described_by(compressed(write_json_lines, ".gz"), describe_in_page),
    "json_lines.zst": described_by(compressed(write_json_lines, ".zst"), describe_in_json),
    "json_array": described_by(write_array, describe_in_page),
    "csv": described_by(write_csv, describe_in_page),
}
