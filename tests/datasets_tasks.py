"""Writes the rows of several data sets as `datasets` does; runs where it is installed.

    python datasets_tasks.py cases.json FOLDER

The JSON has name → `rows` and `features` (column → feature, as in the metadata of files). The
subfolders `NAME/saved`, `NAME/parquet` and `NAME/lines` of FOLDER have their train split.
"""

import json
import os
import sys

import datasets


def main(path, folder):
    """Writes the folders."""
    with open(path, encoding="utf-8") as stream:
        cases = json.load(stream)
    for name, case in cases.items():
        dataset = datasets.Dataset.from_list(case["rows"])
        for column, feature in case["features"].items():
            parsed = datasets.Features.from_dict({column: feature})[column]
            dataset = dataset.cast_column(column, parsed)
        target = os.path.join(folder, name)
        for form in ("parquet", "lines"):
            os.makedirs(os.path.join(target, form))
        datasets.DatasetDict({"train": dataset}).save_to_disk(os.path.join(target, "saved"))
        dataset.to_parquet(os.path.join(target, "parquet", "train-00000-of-00001.parquet"))
        dataset.to_json(os.path.join(target, "lines", "train.jsonl"))


if __name__ == "__main__":
    main(*sys.argv[1:])
