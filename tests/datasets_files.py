"""Writes data sets in every form that `datasets` has; runs where it is installed.

    python datasets_files.py cases.json FOLDER

The JSON has name → `rows` of a split and `features` (column → feature, as in the metadata of
files). The subfolders `NAME/FORM` of FOLDER get the train split.
"""

import json
import os
import sys

import datasets
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCardData

SHARDS = 2


def main(path, folder):
    """Writes the folders."""
    with open(path, encoding="utf-8") as stream:
        cases = json.load(stream)
    for name, case in cases.items():
        dataset = datasets.Dataset.from_list(case["rows"])
        for column, feature in case["features"].items():
            parsed = datasets.Features.from_dict({column: feature})[column]
            dataset = dataset.cast_column(column, parsed)
        write(dataset, os.path.join(folder, name))


def write(dataset, folder):
    """Writes a data set in each form to a subfolder."""

    def place(*names):
        target = os.path.join(folder, *names)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return target

    count = min(SHARDS, len(dataset))
    splits = datasets.DatasetDict({"train": dataset})
    splits.save_to_disk(place("saved"), num_shards={"train": count})
    for number in range(count):
        shard = dataset.shard(count, number, contiguous=True)
        shard.to_parquet(place("shards", "data", f"train-{number:05}-of-{count:05}.parquet"))
    dataset.to_parquet(place("parquet", "train.parquet"))
    dataset.to_json(place("lines", "train.jsonl"))
    dataset.to_json(place("array", "train.json"), lines=False)
    dataset.to_json(place("compressed", "train.jsonl.gz"), compression="gzip")
    dataset.to_csv(place("csv", "train.csv"))
    for form in ("lines", "compressed"):
        dataset.info.write_to_directory(place(form))
    for form in ("array", "csv"):
        card = DatasetCardData()
        DatasetInfosDict({"default": dataset.info}).to_dataset_card_data(card)
        with open(place(form, "README.md"), "w", encoding="utf-8") as stream:
            stream.write(f"---\n{card}\n---\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
